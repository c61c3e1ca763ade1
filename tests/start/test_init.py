"""`privstream init`: for every engine a file that validates and runs; of private records names and kinds alone."""

from __future__ import annotations

import csv
import json
import re
import shlex
import stat
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.cli.init import _cluster
from agents.local.offline.files import rows_for
from agents.local.offline.names import PATTERNS
from agents.local.offline.seen import tried
from schemas.config import ENGINES, load_config
from schemas.config.timing import NUMERIC_FORMATS
from schemas.errors import ConfigError
from tests import commands

MAP = {
    "type": "Polygon",
    "coordinates": [[[13.0, 52.0], [14.0, 52.0], [14.0, 53.0], [13.0, 53.0], [13.0, 52.0]]],
}
SETTINGS: Mapping[str, Sequence[str]] = {
    "box": ["domain.bounds=[13, 52, 14, 53]"],
    "geojson": ["domain.file=map.geojson"],
    "zones": ["domain.field=zone", 'domain.zones=["north", "south"]'],
    "table": ['domain.attributes=[{ field = "zone", values = ["north", "south"] }]'],
    "series": ['domain.fields=[{ name = "fare", of = "sum", limits = [0, 50] }]'],
    "states": ["domain.field=zone", 'domain.values=["north", "south"]', "domain.population=50", "options.horizon=5"],
    "trips": ["domain.bounds=[13, 52, 14, 53]"],
    "keys": ["domain.field=zone"],
}
"""Kind of domain -> what nobody can guess of it."""
KINDS = [(engine, kind) for engine, spec in ENGINES.items() for kind in spec.domains]
USERS, STEPS = 8, 5
BEGIN = 1_600_000_000
EVENTS = ("--set", "privacy.unit=event")
SIGN = 0.0061803
"""At the end of each private number, so that it is known where it turns up."""


def rows() -> list[dict[str, Any]]:
    """An hour a step; coordinates and fares that nobody would type."""
    return [
        {
            "at": BEGIN + 3600 * step + user,
            "rider_id": f"rider-{user}",
            "trip_id": f"trip-{user}-{step}",
            "lon": round(13 + (user + 1) / 10 + SIGN, 7),
            "lat": round(52 + (step + 1) / 10 + SIGN, 7),
            "zone": ("north", "south")[user % 2],
            "fare": round(3 + user + SIGN, 7),
            "colour": f"secret-{user}",
        }
        for step in range(STEPS)
        for user in range(USERS)
    ]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with private rows and a public map."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRIVSTREAM_BOOTSTRAP", raising=False)
    made = rows()
    with (tmp_path / "rides.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, made[0])
        writer.writeheader()
        writer.writerows(made)
    (tmp_path / "map.geojson").write_text(json.dumps(MAP))
    return tmp_path


def call(*arguments: object) -> tuple[int, str, str]:
    """Return the exit code and what is printed, without the breaks within what is said of one thing."""
    result = commands.call(*arguments)
    said, also = (re.sub(r"\n {6}", " ", text) for text in (result.stdout, result.stderr))
    return result.exit_code, said, also


def settings(engine: str, kind: str) -> list[str]:
    assert kind in SETTINGS, f"say in SETTINGS what init must be told of a domain of kind {kind}"
    told = [f"domain.kind={kind}", "privacy.max_contributions=5", *SETTINGS[kind]]
    return ["--engine", engine, *(part for each in told for part in ("--set", each))]


@pytest.mark.parametrize(("engine", "kind"), KINDS)
def test_for_every_engine_it_writes_a_file_that_validates_and_runs_and_holds_nothing_private(
    place: Path, engine: str, kind: str
) -> None:
    code, said, also = call("init", "--from", "rides.csv", "--out", "job.toml", *settings(engine, kind))
    assert code == 0, also
    written = Path("job.toml").read_text()
    for text in (written, said, also):
        assert not private_in(text)
    stream = load_config("job.toml").streams[0]
    assert (stream.engine, stream.domain.kind, stream.name, stream.source) == (engine, kind, "rides", "raw.rides")
    assert stream.time.field == "at"
    assert stream.time.format == "s"
    assert stream.privacy.user == "rider_id"
    code, out, errors = call("simulate", "job.toml", "rides.csv", "--out", "try", "--json")
    assert code == 0, errors
    [done] = json.loads(out)["streams"]
    assert done["rows"] == USERS * STEPS
    assert done["steps"] == STEPS


FORMS = ("s", "ms", "us", "ns", "iso", *PATTERNS)
"""In which a time can be told; those without a time of day have one step a day."""


def told(at: int, form: str) -> Any:
    moment = datetime.fromtimestamp(at, UTC)
    if form in NUMERIC_FORMATS:
        return at * 10**9 // NUMERIC_FORMATS[form]
    return moment.isoformat() if form == "iso" else moment.strftime(form)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


TEXTS, TYPED = ("csv", False), ("parquet", True)
"""An ending, and whether fields are within another one."""
FILES = [
    *((*KINDS[0], *file, FORMS) for file in (TEXTS, TYPED)),
    *((*KINDS[0], *file, ("s", "iso")) for file in (("jsonl", False), ("jsonl", True), ("parquet", False))),
    *((*kind, *file, (form,)) for kind in KINDS[1:] for file, form in ((TEXTS, "s"), (TYPED, "iso"))),
]
"""Times are read from texts or from typed values, whatever the engine: the first has all forms of both."""


@pytest.mark.parametrize(("engine", "kind", "ending", "nested", "forms"), FILES)
def test_whatever_the_file_and_its_times_what_is_written_reads_it(
    place: Path, engine: str, kind: str, ending: str, nested: bool, forms: Sequence[str]
) -> None:
    """A part of a time stands beside it, and is not taken for it."""
    for form in forms:
        made: list[dict[str, Any]] = [
            {"hour": n % 24, "day": n, **row, "at": told(BEGIN + 86400 * (n // USERS), form)}
            for n, row in enumerate(rows())
        ]
        said = [*settings(engine, kind), "--set", "time.step=1 day"]
        if nested:
            made = [{"hour": row.pop("hour"), "event": row} for row in made]
            said = [re.sub(r"(field\b ?=|name ?=)( ?\"?)(zone|fare)", r"\1\2event.\3", each) for each in said]
        path = Path(f"rides.{ending}")
        write_rows(path, made)
        code, out, also = call("init", "--from", path, "--out", "job.toml", "--overwrite", *said)
        assert code == 0, (form, out, also)
        stream = load_config("job.toml").streams[0]
        at = "event.at" if nested else "at"
        assert (stream.time.field, stream.time.format) == (at, "iso" if form == "%Y-%m-%d %H:%M:%S" else form)
        assert not private_in(Path("job.toml").read_text() + out + also)
        seen = tried(stream, [row for batch in rows_for(path, stream).batches() for row in batch])
        assert seen is not None
        assert (seen.rows, seen.refused) == (USERS * STEPS, ())


def test_a_part_of_a_time_is_not_taken_for_the_time(place: Path) -> None:
    Path("rows.csv").write_text("hour,day,year,rider_id,birth_date,x,y\n" + "5,3,1997,r,1960-01-02,1,2\n" * 9)
    usual = ("init", "--from", "rows.csv", "--engine", "spatial", "--out", "job.toml", "--overwrite")
    _, said, _ = call(*usual)
    assert (
        "--set time.field=VALUE: Which field holds the time of an event? None of the sample's is a whole time" in said
    )
    _, said, _ = call(*usual, "--set", "time.field=hour")
    assert "--set time.format=VALUE: How is hour written?" in said


def test_a_time_in_parts_and_a_trip_of_all_a_user_has_are_said_with_their_columns(place: Path) -> None:
    """What is said is what is typed, and then nothing is left to fill in."""
    Path("rows.csv").write_text("Year,month,day,hour,storm,lon,lat\n" + "1997,3,5,6,r,13.5,52.5\n" * 9)
    usual = ("init", "--from", "rows.csv", "--engine", "trajectory", "--out", "job.toml", "--overwrite")
    told = [
        "privacy.user=storm",
        "privacy.max_contributions=9",
        "domain.bounds=[13, 52, 14, 53]",
        "time.start=1997-03-01",
    ]
    known = [word for each in told for word in ("--set", each)]
    code, said, _ = call(*usual, *known)
    assert code == 1
    advice = [
        word for line in said.splitlines() if "to fill in" in line for word in shlex.split(re.sub("'s", "", line))
    ]
    offered = [advice[at + 1].rstrip(".,") for at, word in enumerate(advice) if word == "--set"]
    offered = [each for each in offered if not each.endswith(("VALUE:", "=FORMAT;"))]
    assert {"time.field=at", "time.format=%Y-%m-%d-%H", "map.track=storm", "domain.trip=track"} < set(offered)
    printed = commands.call(*usual, *known).output.splitlines()
    assert [line for line in printed if len(line) > 80 and not re.fullmatch(r' +--set "[^"]+"', line)] == []
    assert call(*usual, *known, *[word for each in offered for word in ("--set", each)])[0] == 0
    assert load_config("job.toml").streams[0].time.format == "%Y-%m-%d-%H"


def test_numbers_that_are_written_as_texts_are_numbers_of_a_table(place: Path) -> None:
    rows = [{"at": "2024-01-01", "fare": fare, "zip": "07030", "zone": "n/a"} for fare in ("12.50", "7", None)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = call("init", "--from", "rows.jsonl", "--engine", "tabular", *EVENTS, "--out", "job.toml")
    assert "fare (numbers as text), zip (text), zone (text)" in said[2] + said[1]
    written = Path("job.toml").read_text()
    assert re.search(r'field = "fare", edges =', written)
    assert re.search(r'field = "zip", values =', written)


def test_the_only_field_that_can_be_the_time_is_taken_and_named(place: Path) -> None:
    usual = ("init", "--from", "rows.csv", "--engine", "spatial", *EVENTS, "--out", "job.toml", "--overwrite")
    Path("rows.csv").write_text("began,x,y\n" + "1600000000,1,2\n" * 9)
    _, said, also = call(*usual)
    assert "time of an event: began" in said + also
    assert load_toml("job.toml")["time"]["field"] == "began"
    Path("rows.csv").write_text("began,ended,x,y\n" + "1600000000,1600000001,1,2\n" * 9)
    assert "time of an event? Of began, ended" in call(*usual)[1]


def test_where_the_sample_does_not_tell_day_from_month_both_are_named(place: Path) -> None:
    Path("rows.csv").write_text("at,x,y\n" + "01/02/2016,1,2\n" * 9)
    usual = ("init", "--from", "rows.csv", "--engine", "spatial", *EVENTS, "--out", "job.toml", "--overwrite")
    assert "does not tell which of %d/%m/%Y and %m/%d/%Y" in call(*usual)[1]
    assert "time.format=" not in call(*usual, "--set", "time.format=%m/%d/%Y")[1]
    assert load_toml("job.toml")["time"]["format"] == "%m/%d/%Y"


def load_toml(path: str) -> Any:
    return tomllib.loads(Path(path).read_text())["streams"][0]


def test_what_is_told_wins_over_what_would_be_guessed(place: Path) -> None:
    """A field that is told for one thing is guessed for no other; tables and sections too."""
    usual = ("init", "--from", "rides.csv", "--out", "job.toml", "--overwrite", *settings("spatial", "box"))
    more = ("--set", 'time={ field = "at", step = "2h" }', "--set", "kafka.partitions=7", "--set", "job.name=mine")
    code, _, also = call(*usual, *more, "--set", "csv={ encoding = 'ascii' }", "--set", "format=csv")
    assert code == 0, also
    config = load_config("job.toml")
    assert (config.job.name, config.kafka.partitions) == ("mine", 7)
    stream = config.streams[0]
    assert stream.time.step == timedelta(hours=2)
    assert stream.csv is not None
    assert stream.csv.encoding == "ascii"
    call(*usual, "--set", "domain.op=rider_id")
    assert "user" not in load_toml("job.toml")["privacy"]
    unknown = call(*usual, "--set", "domain.epsilom=1")[2]
    assert "domain.epsilom" in unknown
    assert "--set domain.epsilom" not in unknown
    assert "privacy.user=VALUE, or leave it out" in call(*usual, *EVENTS, "--set", "privacy.user=rider_id")[2]


def test_a_spreadsheets_export_is_read_as_it_is(place: Path) -> None:
    """With semicolons, decimal commas and an encoding of its own: each refusal names the key that is missing."""
    Path("sales.csv").write_text(
        "käufer;zeit;betrag\n" + "".join(f"k{n % 9};{BEGIN + 3600 * n};{n},5\n" for n in range(40)), encoding="cp1252"
    )
    usual = ["init", "--from", "sales.csv", "--out", "job.toml", "--engine", "series", "--overwrite"]
    for each in ("time.field=zeit", "privacy.user=käufer", "privacy.max_contributions=5"):
        usual += ["--set", each]
    usual += ["--set", 'domain.fields=[{ name = "betrag", of = "sum", limits = [0, 50] }]']
    assert "byte 2: not UTF-8" in call(*usual)[2]
    told = ["--set", "csv.encoding=cp1252"]
    assert "--set csv.delimiter=" in call(*usual, *told)[2]
    told += ["--set", "csv.delimiter=;"]
    assert "csv.delimeter" in call(*usual, *told, "--set", "csv.delimeter=;")[2]
    assert "WRONG_TYPE of betrag 100%" in call(*usual, *told)[2]
    code, out, also = call(*usual, *told, "--set", "csv.decimal=,")
    assert code == 0, also
    assert "betrag (number)" in out + also
    code, out, also = call("simulate", "job.toml", "sales.csv", "--out", "try", "--json")
    assert code == 0, also
    assert json.loads(out)["streams"][0]["rows"] == 40


def test_a_sample_of_which_most_would_be_refused_is_said_to_be_so_and_nothing_written(place: Path) -> None:
    usual = ("init", "--from", "rides.csv", "--out", "job.toml", *settings("spatial", "box"))
    wrong = ("--set", "domain.bounds=[1, 52, 2, 53]")
    code, out, also = call(*usual, *wrong)
    assert code == 2
    assert "100% refused: OUTSIDE_DOMAIN of lon 100%. Nothing was written.\n" in also
    assert not private_in(out + also)
    assert not Path("job.toml").exists()
    assert not Path("user.key").exists()
    assert call(*usual, *wrong, "--allow-refused")[0] == 0
    far = [{**row, "at": row["at"] * 2} if n else row for n, row in enumerate(rows())]
    write_rows(Path("rides.csv"), far)
    assert "more than 10,000 steps" in call(*usual, "--overwrite")[2]


def private_in(text: str) -> list[str]:
    """Values of the rows that are in a text; zones were said by hand."""
    values = {str(value) for row in rows() for key, value in row.items() if key != "zone"}
    return sorted(value for value in values if value in text)


def test_what_is_private_would_be_found(place: Path) -> None:
    """The planted fault: the private rows, declared public."""
    arguments = ("init", "--out", "job.toml", "--public", "rides.csv", "--from", "rides.csv")
    code, _, also = call(*arguments, "--engine", "tabular", "--set", "privacy.unit=event")
    assert code == 0, also
    assert private_in(Path("job.toml").read_text())


def test_a_public_file_says_bounds_and_categories(place: Path) -> None:
    public = [{"lon": 13.25, "lat": 52.5, "zone": "b", "n": 1}, {"lon": 13.75, "lat": 52.75, "zone": "a", "n": 3}]
    Path("public.jsonl").write_text("\n".join(map(json.dumps, [*public, {"lon": None, "zone": "c", "n": 2}])))
    usual = ("init", "--from", "rides.csv", "--public", "public.jsonl", *EVENTS, "--overwrite", "--allow-refused")
    assert call(*usual, "--out", "job.toml", "--engine", "spatial")[0] == 0
    domain = load_config("job.toml").streams[0].domain
    left, bottom, right, top = domain.bounds  # type: ignore[attr-defined]
    assert 13.2 < left < 13.25
    assert 52.4 < bottom < 52.5
    assert 13.75 < right < 13.8, "the upper edge does not belong to a box"
    assert 52.75 < top < 52.8
    assert call(*usual, "--out", "job.toml", "--engine", "tabular")[0] == 0
    listed = {each.field: each for each in load_config("job.toml").streams[0].domain.attributes}  # type: ignore[attr-defined]
    assert set(listed) == {"lon", "lat", "zone"}, "fields that both have"
    assert listed["zone"].values == ("a", "b", "c")
    assert listed["lon"].missing
    assert listed["lon"].edges[0] == 13.25


def test_a_public_file_with_more_values_than_categories_says_so(place: Path) -> None:
    Path("public.jsonl").write_text("\n".join(json.dumps({"zone": f"z{n}", "n": n}) for n in range(1001)))
    arguments = ("init", "--from", "rides.csv", "--public", "public.jsonl", "--engine", "markov")
    code, said, _ = call(*arguments, "--set", "domain.field=zone", "--out", "job.toml")
    assert code == 1
    assert "domain.values=VALUE: public.jsonl has more than 1,000 different values of zone" in said


MANY = [
    {"at": BEGIN + n, "rider_id": f"r{n % 9}", "shop": f"shop-{n}", "paid": "card" if n % 2 else "cash"}
    for n in range(1500)
]
OF_MANY = ("init", "--engine", "tabular", "--from", "many.jsonl", "--set", "privacy.max_contributions=4")


def test_values_that_nobody_can_list_are_found_in_a_table(place: Path) -> None:
    """The reason stands beside it, and a delta is written; of private records nothing says how many there are."""
    write_rows(place / "many.jsonl", MANY)
    said = (*OF_MANY, "--overwrite")
    code, _, err = call(*said, "--public", "many.jsonl")
    assert code == 0, err
    stream = load_config("privstream.toml").streams[0]
    assert stream.privacy.delta == 1e-6
    assert [each["values"] for each in load_toml("privstream.toml")["domain"]["attributes"]] == [
        "discover",
        ["card", "cash"],
    ]
    text = " ".join(Path("privstream.toml").read_text().replace("#", " ").split())
    assert 'many.jsonl has more values of shop than can be listed: values = "discover" finds the texts' in text
    assert "needs privacy.delta, far below one divided by the number of users" in text
    code, out, _ = call(*said)
    text = " ".join(Path("privstream.toml").read_text().replace("#", " ").split())
    assert code != 0
    assert "domain.attributes" in out
    assert 'attributes = [{ field = "shop", values = "discover" }]' in text
    assert "shop-1" not in text
    # Whoever says it is asked for nothing more.
    code, _, err = call(*said, "--set", 'domain.attributes=[{ field = "shop", values = "discover" }]')
    assert code == 0, err
    assert load_config("privstream.toml").streams[0].privacy.delta == 1e-6


def test_of_two_fields_of_many_values_one_is_found_and_the_other_is_asked_for(place: Path) -> None:
    write_rows(place / "many.jsonl", [{**row, "street": f"street-{n}"} for n, row in enumerate(MANY)])
    code, out, _ = call(*OF_MANY, "--public", "many.jsonl")
    assert code != 0
    assert "many.jsonl has more than 1,000 different values of street" in out
    text = Path("privstream.toml").read_text()
    assert '{ field = "shop", values = "discover" }' in text
    assert '{ field = "street", values = ["TEXT", "TEXT"] }' in text
    assert "\ndelta = 1e-06" in text


def test_of_keys_a_bound_of_keys_is_asked_for(place: Path) -> None:
    write_rows(place / "many.jsonl", MANY)
    code, out, _ = call("init", "--engine", "keys", "--from", "many.jsonl", "--set", "domain.field=shop")
    assert code != 0
    assert "How many keys of one user count?" in out


def test_histograms_and_groups_are_offered_in_comments(place: Path) -> None:
    """Of a private sample by names and types alone, so with no value; of a public file by how many values there are."""
    usual = ["init", "--from", "rides.csv", "--out", "job.toml", "--overwrite", "--engine", "series"]
    usual += ["--set", "privacy.max_contributions=5"]
    edges = "edges = { from = N, to = N, bins = 30 }"

    def written(*more: str) -> str:
        code, _, also = call(*usual, *more)
        assert code == 0, also
        return " ".join(Path("job.toml").read_text().replace("\n# ", " ").split())

    text = written()
    assert not private_in(text)
    assert f'you choose: of lon, lat, fare fields = [{{ name = "lon", of = "histogram", {edges} }}]' in text
    assert 'Here: trip_id, zone, colour. by = "trip_id" values = ["TEXT", "TEXT"] # All values' in text
    assert load_config("job.toml").streams[0].domain.fields == (), "nothing of it is chosen"

    census = [{"fare": n * n, "tip": n % 3, "zone": ("north", "south")[n % 2], "colour": f"c{n}"} for n in range(100)]
    write_rows(Path("census.csv"), census)
    text = written("--public", "census.csv")
    assert f'you choose: of fare fields = [{{ name = "fare", of = "histogram", {edges} }}]' in text
    assert 'Here: zone. by = "zone" values = ["north", "south"] # All values' in text

    table = f'{{ name = "fare", of = "histogram", {edges} }}'.replace("N,", "0,", 1).replace("N,", "9,", 1)
    told = ["--set", f"domain.fields=[{table}]", "--set", "domain.by=zone"]
    written("--public", "census.csv", *told)
    assert load_config("job.toml").streams[0].domain.fields == ("zone", "fare")
    code, said, _ = call(*usual, *told)
    assert code == 1
    assert "--set domain.values=VALUE: All values of `by`, public" in said


def test_fields_of_tables_are_chosen_by_name(place: Path) -> None:
    usual = ("init", "--from", "rides.csv", *EVENTS, "--out", "job.toml", "--engine", "tabular", "--overwrite")
    assert call(*usual)[0] == 1
    text = Path("job.toml").read_text()
    assert '{ field = "zone", values = ["TEXT", "TEXT"] }, { field = "fare", edges = [N, N, N, N] }' in text
    assert call(*usual, "--set", 'domain.attributes=["zone"]')[0] == 1
    assert '# attributes = [{ field = "zone", values = ["TEXT", "TEXT"] }]' in Path("job.toml").read_text()
    assert "there is no field zine" in call(*usual, "--set", 'domain.attributes=["zine"]')[2]


@pytest.mark.parametrize(("name", "user"), [("passenger_count", None), ("usertype", None), ("userid", "userid")])
def test_a_number_of_users_is_no_user(name: str, user: str | None, place: Path) -> None:
    Path("rows.csv").write_text(f"at,{name},x\n2024-01-01,1,2\n")
    call("init", "--from", "rows.csv", "--engine", "spatial", "--out", "job.toml")
    written = tomllib.loads(Path("job.toml").read_text())["streams"][0]["privacy"]
    assert (written["unit"], written.get("user")) == ("user", user)


def test_what_nobody_can_guess_is_to_be_filled_in(place: Path) -> None:
    code, said, also = call("init", "--out", "job.toml", "--engine", "spatial", "--from", "rides.csv")
    assert code == 1, also
    assert " Or name a PUBLIC file that has it with --public." in said
    lines = Path("job.toml").read_text().splitlines()
    for key, blank in (("privacy.max_contributions", "N"), ("domain.bounds", "[N, N, N, N]")):
        assert f"--set {key}=VALUE" in said
        at = lines.index(f"# {key.partition('.')[2]} = {blank}")
        assert any(line.startswith("# TO FILL IN: ") for line in lines[at - 3 : at])
    refused = call("validate", "job.toml")
    assert refused[0] == 2
    assert refused[2].count("fix: add ") == 2, "no more is missing than is said"
    machine = json.loads(call("init", "--json", "--engine", "series", "--out", "other.toml")[1])
    assert "--set privacy.unit=event in place of it" in machine["to_fill"]["privacy.user"]
    assert set(machine["to_fill"]) == {"source", "name", "time.field", "privacy.user", "privacy.max_contributions"}


def test_an_answer_that_cannot_be_used_is_refused_and_nothing_written(place: Path) -> None:
    wrong = ("--set", "time.timezone=Europe/Berln", "--set", "privacy.epsilon=0", "--set", "privacy.epsilom=1")
    for rest in (settings("spatial", "box"), ["--engine", "spatial"]):
        code, _, also = call("init", "--out", "job.toml", "--from", "rides.csv", *rest, *wrong)
        assert code == 2
        assert 'did you mean "Europe/Berlin"?: --set time.timezone=VALUE' in also
        assert "--set privacy.epsilon=VALUE" in also
        assert "privacy.epsilom" in also
        assert not Path("job.toml").exists()
        assert not Path("user.key").exists()
    listed = call("init", "--engine", "x")[2]
    assert all(spec.summary in listed for spec in ENGINES.values())
    assert "no such kind" in call("init", "--engine", "markov", "--set", "domain.kind=box")[2]
    assert "no value" in call("init", "--engine", "spatial", "--set", "time.grace")[2]


def test_the_user_key_is_made_for_this_user_alone_and_never_again(place: Path) -> None:
    arguments = ("init", "--from", "rides.csv", "--out", "job.toml", *settings("spatial", "box"))
    code, _, also = call(*arguments)
    assert code == 0
    key = Path("user.key")
    assert "back it up" in also
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    assert len(before) == 32
    refused = call(*arguments)
    assert refused[0] == 2
    assert "--overwrite" in refused[2]
    code, _, also = call(*arguments, "--overwrite")
    assert code == 0
    assert "back it up" not in also
    assert key.read_bytes() == before


def test_every_key_is_explained_by_a_comment(place: Path) -> None:
    """What was answered, and what else there is."""
    assert call("init", "--from", "rides.csv", "--out", "job.toml", *settings("spatial", "box"))[0] == 0
    assert call("validate", "job.toml")[0] == 0
    lines = Path("job.toml").read_text().splitlines()
    for key in ("epsilon", "max_contributions", "user_key_file", "step", "start", "source"):
        at = next(index for index, line in enumerate(lines) if line.startswith(f"{key} ="))
        assert lines[at - 1].startswith("# "), key
    for key in ("grace", "per", "ttl", "depth", "ssl_cafile"):
        assert any(re.match(rf"# {key} = ", line) for line in lines), key


def test_the_topic_is_read_with_the_security_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSTREAM_BOOTSTRAP", "other:1")
    monkeypatch.setenv("PRIVSTREAM_KAFKA__SECURITY_PROTOCOL", "SSL")
    kafka = _cluster("kafka:9093", {})
    assert (kafka.bootstrap, kafka.security_protocol) == ("kafka:9093", "SSL")
    monkeypatch.setenv("PRIVSTREAM_KAFKA__SECURITY_PROTOCOLL", "SSL")
    with pytest.raises(ConfigError, match="did you mean"):
        _cluster("kafka:9093", {})
    monkeypatch.delenv("PRIVSTREAM_KAFKA__SECURITY_PROTOCOLL")
    for wrong in ("kafka", "kafka:99999999"):
        arguments = ("init", "--engine", "spatial", "--topic", "t", "--bootstrap", wrong)
        assert "--bootstrap host:9092" in call(*arguments)[2]
    told = ("--bootstrap", "kafka:9093", "--set", "kafka.registry.url=ftp://r")
    assert "--set kafka.registry.url=VALUE" in call("init", "--engine", "spatial", "--topic", "t", *told)[2]
