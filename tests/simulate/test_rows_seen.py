"""What becomes of rows is said by field, reason, number and first place; a file that does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.local.offline.files import FileError, open_rows, rows_for
from agents.local.offline.seen import FIRST_ROWS, check_fit, first_rows
from agents.local.offline.simulate import Simulated, simulate
from agents.protocol.replay import Progress, ReplayError, clock_of, plan_of, steps_of, times_of
from schemas.config import Config, parse_config

CONFIG = """
[job]
name = "seen"
[kafka]
bootstrap = "nowhere:9092"
[[streams]]
name = "s"
engine = "tabular"
source = "raw.s"
[streams.privacy]
epsilon = 1.0
unit = "user"
user = "who"
max_contributions = 2
user_key_file = "key"
[streams.time]
field = "at"
format = "iso"
start = "2016-01-01T00:00:00"
step = "1d"
clock = "replay"
[streams.domain]
kind = "table"
attributes = [{ field = "a", values = ["x", "y"] }, { field = "b", values = ["1.0", "2.0"] }]
"""


@pytest.fixture
def config() -> Config:
    return parse_config(CONFIG)


def row(at: int, **changes: Any) -> dict[str, Any]:
    return {"who": f"u{at}", "at": f"2016-01-{1 + at // 50:02d}T00:00:00", "a": "x", "b": "1.0", **changes}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in rows))
    return path


def run(config: Config, path: Path, out: Path) -> Simulated:
    [done] = simulate(config, path, out, seed=1)
    return done


def test_each_reason_has_its_field_its_number_and_its_first_row(config: Config, tmp_path: Path) -> None:
    rows = [row(at) for at in range(200)]
    for at in (17, 60, 199):
        rows[at]["b"] = 1.0
    rows[99]["a"] = "z"
    rows[150]["at"] = "yesterday"
    rows[20]["who"] = rows[21]["who"] = rows[22]["who"] = "often"
    done = run(config, write(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    assert [(each.reason, each.name, each.rows, each.first_row) for each in done.refused] == [
        ("WRONG_TYPE", "b", 3, 18),
        ("OUTSIDE_DOMAIN", "a", 1, 100),
        ("BAD_TIME", "at", 1, 151),
    ]
    assert done.counts["OVER_BOUND"] == 1
    assert done.rows == 200 == done.events + sum(each.rows for each in done.refused) + done.counts["OVER_BOUND"]
    assert not done.misfit
    page = (tmp_path / "out" / "report.html").read_text()
    assert "WRONG_TYPE" in page
    assert "% refused" not in page, "three in a hundred is not much"


def test_a_bound_that_leaves_out_most_rows_is_said_and_is_a_misfit(config: Config, tmp_path: Path) -> None:
    """Once 9 % of the rows were used, and the command ended well."""
    rows = [row(at) | {"who": f"u{at % 10}"} for at in range(50)]
    done = run(config, write(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    assert (done.events, done.counts["OVER_BOUND"], done.misfit) == (20, 30, True)
    [said] = done.left_out
    assert "60% of the rows are over the bound of their user, max_contributions = 2" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("60% of the rows are over") < page.index("Verdict")
    half = run(config, write(tmp_path / "half.jsonl", rows[:40]), tmp_path / "half")
    assert (half.events, half.misfit, half.left_out) == (20, False, ())


def test_values_beyond_their_limits_are_said_loudly(tmp_path: Path) -> None:
    """What is compared with is moved as well: a verdict of "good" says nothing of the values as they were."""
    domain = 'kind = "series"\nfields = [{ name = "n", of = "sum", limits = [0, 1] }]'
    text = (
        CONFIG.split("[streams.domain]", maxsplit=1)[0]
        .replace('"tabular"', '"series"')
        .replace("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6")
    )
    config = parse_config(f"{text}[streams.domain]\n{domain}\n")
    rows = [row(at) | {"n": 9 if at % 10 == 0 else 1} for at in range(40)]
    done = run(config, write(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    assert done.counts["CLIPPED"] == 4
    assert ["10% of the rows have a value beyond a limit" in said for said in done.left_out] == [True]
    rows = [row(at) | {"n": 9 if at == 0 else 1} for at in range(40)]
    assert run(config, write(tmp_path / "few.jsonl", rows), tmp_path / "few").left_out == ()


def test_times_that_clocks_showed_twice_or_skipped_are_said(tmp_path: Path) -> None:
    config = parse_config(CONFIG.replace('format = "iso"', 'timezone = "Europe/Berlin"'))
    rows = [
        row(0) | {"who": at, "at": f"2016-{at}"} for at in ("01-01T00:00:00", "03-27T02:30:00", *["10-30T02:30:00"] * 2)
    ]
    done = run(config, write(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    assert (done.counts["AMBIGUOUS_TIME"], done.counts["NONEXISTENT_TIME"]) == (2, 1)
    assert "at a local time that clocks skipped" in (tmp_path / "out" / "report.html").read_text()


def test_a_table_of_texts_that_look_like_numbers_is_used_whole(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = [f"u{at},2016-01-01T00:00:00,{'xy'[at % 2]},{1 + at % 2}.0" for at in range(100)]
    path.write_text("who,at,a,b\n" + "\n".join(lines) + "\n")
    assert run(config, path, tmp_path / "out").events == 100


def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(config: Config, tmp_path: Path) -> None:
    rows = [row(at, b=1.0 if at % 3 else "1.0") for at in range(91)]
    file = rows_for(write(tmp_path / "rows.jsonl", rows), config.streams[0])
    with pytest.raises(
        FileError, match=r"refuse 66% of the next 91 rows: WRONG_TYPE of b: 60 rows, 66%, first in row 2"
    ):
        check_fit(config.streams[0], file)
    assert first_rows(config.streams[0], file).misfit
    assert check_fit(config.streams[0], file, skip=90).rows == 1
    assert first_rows(config.streams[0], file, skip=87).refused[0].first_row == 89, "of the file"
    assert run(config, file.path, tmp_path / "out").misfit


def test_lines_that_are_no_json_are_refused_one_by_one_and_the_file_goes_on(config: Config, tmp_path: Path) -> None:
    """As records of a topic are: as many rows, each by its own words, and what is replayed is what stands there."""
    lines = [orjson.dumps(row(at)) for at in range(100)]
    lines[3] = lines[50] = b'{"who": "u3", "at": "2016-01-0'
    lines[7], lines[60] = b'["secret"]', b"\xff\xfe"
    lines.insert(0, b"")
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    done = run(config, path, tmp_path / "out")
    assert (done.rows, done.events, done.misfit, done.refused_share) == (100, 96, False, 0.04)
    assert [(each.reason, each.rows, each.first_row, each.first_line) for each in done.refused] == [
        ("NOT_JSON", 3, 4, 5),
        ("WRONG_TYPE", 1, 8, 9),
    ]
    assert str(done.refused[0]) == "NOT_JSON: 3 rows, 3%, first in line 5"
    assert "each line must be one JSON object" in done.refused[0].what_to_do
    [stream] = config.streams
    found = check_fit(stream, rows_for(path, stream))
    assert found.seen.tally["NOT_JSON", ""] == 3
    plan = plan_of(stream, {"raw": 2, "held": 1}, Progress())
    rows = [each for part in open_rows(path).batches() for each in part]
    chunk = plan.chunk(rows, steps_of(clock_of(stream), times_of(stream).parse(rows)))
    for place, numbers in {("raw", 0): (51, 61), ("raw", 1): (4, 8), ("held", 0): (4, 8, 51, 61)}.items():
        unkeyed = [record.value for record in chunk.records[place] if record.tick is None and record.key is None]
        assert unkeyed == [lines[number] for number in numbers], place


def test_a_file_of_broken_lines_is_a_misfit(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([orjson.dumps(row(at)) if at % 3 == 0 else b"oops" for at in range(60)]))
    assert run(config, path, tmp_path / "out").misfit
    with pytest.raises(FileError, match=r"would refuse 67% of the next 60 rows: NOT_JSON: 40 rows, 67%, first in line"):
        check_fit(config.streams[0], rows_for(path, config.streams[0]))


def test_only_so_many_rows_are_looked_at(config: Config, tmp_path: Path) -> None:
    rows = [row(at % 50) for at in range(3 * FIRST_ROWS)]
    file = rows_for(write(tmp_path / "rows.jsonl", rows), config.streams[0])
    assert FIRST_ROWS <= first_rows(config.streams[0], file).rows < 2 * FIRST_ROWS


def test_an_empty_file_and_a_folder_in_use_are_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("who,at,a,b\n")
    with pytest.raises(FileError, match="the file has no rows"):
        run(config, tmp_path / "empty.csv", tmp_path / "out")
    path = write(tmp_path / "rows.jsonl", [row(0)])
    run(config, path, tmp_path / "out")
    before = (tmp_path / "out" / "steps.csv").read_bytes()
    with pytest.raises(FileError, match="holds a simulation already"):
        run(config, path, tmp_path / "out")
    assert (tmp_path / "out" / "steps.csv").read_bytes() == before
    [again] = simulate(config, path, tmp_path / "out", seed=1, overwrite=True)
    assert again.events == 1


def test_a_row_that_is_not_sorted_is_named_as_it_stands_in_the_file(config: Config, tmp_path: Path) -> None:
    rows = [row(at) for at in (0, 60, 120, 0)]
    file = rows_for(write(tmp_path / "rows.jsonl", rows), config.streams[0])
    with pytest.raises(ReplayError, match=r"row 4 of the file .*What was replayed in part needs new topics"):
        first_rows(config.streams[0], file, skip=1)
    with pytest.raises(
        ReplayError, match=r"row 4 of the file .*Fix: sort the file by at, as times and not as texts; replay would"
    ) as alone:
        run(config, file.path, tmp_path / "out")
    assert not any(word in str(alone.value) for word in ("topic", "--until", "--append", "replayed"))


@pytest.mark.parametrize(
    ("time", "form"),
    [
        ("05/01/2016 10:00:00", '%d/%m/%Y %H:%M:%S" or "%m/%d/%Y %H:%M:%S'),
        ("25/01/2016 10:00:00", "%d/%m/%Y %H:%M:%S"),
        ("2016.01.05", None),
        (1_452_000_000, "s"),
        (1_452_000_000_123, "ms"),
    ],
)
def test_a_wrong_time_format_is_named_with_the_right_one(
    config: Config, tmp_path: Path, time: Any, form: str | None
) -> None:
    """Of rows of which all are refused for it; as of those with which a stream should start."""
    path = write(tmp_path / "rows.jsonl", [row(at) for at in range(3)] + [{**row(0), "at": time}] * 40)
    what = f'format = "{form}", as' if form else "format to how"
    done = run(config, path, tmp_path / "out")
    assert [(each.reason, each.name, each.first_row) for each in done.refused] == [("BAD_TIME", "at", 4)]
    assert what in done.refused[0].what_to_do
    assert done.misfit
    with pytest.raises(FileError, match="BAD_TIME of at: 40 rows") as refused:
        check_fit(config.streams[0], rows_for(path, config.streams[0]))
    assert what in str(refused.value)
    starting = parse_config(CONFIG.replace('"2016-01-01T00:00:00"', '"now"').replace('clock = "replay"', ""))
    path = write(tmp_path / "bad.jsonl", [{**row(0), "at": time}] * 5)
    with pytest.raises(FileError, match="stream s: no row has a time in at that reads as format = ") as refused:
        run(starting, path, tmp_path / "other")
    assert what in str(refused.value)
    assert str(time) not in str(refused.value)


def test_a_report_says_above_the_verdict_that_epsilon_promises_little(config: Config, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row(at) for at in range(9)])
    run(parse_config(CONFIG.replace("epsilon = 1.0", "epsilon = 10.5")), path, tmp_path / "much")
    page = (tmp_path / "much" / "report.html").read_text()
    assert 0 < page.find("epsilon above 10 promises little") < page.index("Verdict")
    run(config, path, tmp_path / "usual")
    assert "promises little" not in (tmp_path / "usual" / "report.html").read_text()
