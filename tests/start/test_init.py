"""`privstream init`: for every engine a file that validates and runs; of private records names and kinds alone."""

from __future__ import annotations

import csv
import json
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from agents.cli.app import build_app
from agents.cli.start.init import _cluster
from agents.local.start.interview import OPTIONS, Interview
from agents.local.start.sample import FieldSeen
from schemas.config import ENGINES, load_config
from schemas.errors import ConfigError

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
}
"""Kind of domain -> what nobody can guess of it."""
KINDS = [(engine, kind) for engine, spec in ENGINES.items() for kind in spec.domains]
USERS, STEPS = 8, 5
BEGIN = 1_600_000_000
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


def call(*arguments: object, typed: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(build_app(), [str(each) for each in arguments], input=typed)
    assert "Traceback" not in result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def settings(engine: str, kind: str) -> list[str]:
    assert kind in SETTINGS, f"say in SETTINGS what init must be told of a domain of kind {kind}"
    told = ["--engine", engine, "--kind", kind, "--max-contributions", "5"]
    return told + [part for each in SETTINGS[kind] for part in ("--set", each)]


@pytest.mark.parametrize(("engine", "kind"), KINDS)
def test_for_every_engine_it_writes_a_file_that_validates_and_runs_and_holds_nothing_private(
    place: Path, engine: str, kind: str
) -> None:
    code, said, also = call("init", "--yes", "--from", "rides.csv", "--out", "job.toml", *settings(engine, kind))
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


def private_in(text: str) -> list[str]:
    """Values of the rows that are in a text; zones were said by hand."""
    values = {str(value) for row in rows() for key, value in row.items() if key != "zone"}
    return sorted(value for value in values if value in text)


def test_what_is_private_would_be_found(place: Path) -> None:
    """The planted fault: the private rows, declared public."""
    arguments = ("init", "--yes", "--out", "job.toml", "--public", "rides.csv", "--from", "rides.csv")
    code, _, also = call(*arguments, "--engine", "tabular", "--unit", "event")
    assert code == 0, also
    assert private_in(Path("job.toml").read_text())


def test_a_public_file_says_bounds_and_categories(place: Path) -> None:
    public = [{"lon": 13.25, "lat": 52.5, "zone": "b", "n": 1}, {"lon": 13.75, "lat": 52.75, "zone": "a", "n": 3}]
    Path("public.jsonl").write_text("\n".join(map(json.dumps, [*public, {"lon": None, "zone": "c", "n": 2}])))
    usual = ("init", "--yes", "--from", "rides.csv", "--public", "public.jsonl", "--unit", "event", "--overwrite")
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
    arguments = ("init", "--yes", "--from", "rides.csv", "--public", "public.jsonl", "--engine", "tabular")
    code, _, said = call(*arguments, "--unit", "event", "--time-field", "at", "--out", "job.toml")
    assert code == 2
    assert "domain.attributes.zone.values" in said
    assert "public.jsonl has more than 1,000 different ones" in " ".join(said.split())
    assert not Path("job.toml").exists()


def test_fields_are_chosen_by_name_and_each_is_described_by_options(place: Path) -> None:
    """Every option that a refusal names must be one that helps: once the next refusal said "unknown key"."""
    usual = ("init", "--yes", "--from", "rides.csv", "--unit", "event", "--out", "job.toml", "--engine", "tabular")
    code, _, also = call(*usual)
    assert code == 2
    assert """add --set 'domain.attributes=["FIELD", ...]'; of each field --public FILE""" in also
    assert """--set 'domain.attributes.FIELD.values=["TEXT", "TEXT"]'""" in also
    chosen = (*usual, "--set", 'domain.attributes=["zone", "fare"]')
    code, _, also = call(*chosen)
    assert code == 2
    assert """fix: add --set 'domain.attributes.zone.values=["TEXT", "TEXT"]'""" in also
    assert "fix: add --set 'domain.attributes.fare.edges=[N, N, N]'" in also
    each = ("--set", 'domain.attributes.zone.values=["north", "south"]', "--set", "domain.attributes.fare.edges=[0, 9]")
    assert call(*chosen, *each, "--set", 'domain.attributes.zone.unknown="other"')[0] == 0
    listed = load_config("job.toml").streams[0].domain.attributes  # type: ignore[attr-defined]
    assert [(each.field, each.values, each.edges) for each in listed] == [
        ("zone", ("north", "south"), None),
        ("fare", None, (0, 9)),
    ]
    assert listed[0].unknown == "other"
    assert call(*usual, "--overwrite", *each)[0] == 0, "what is described is chosen"
    assert "there is no field zine" in call(*usual, "--overwrite", "--set", 'domain.attributes=["zine"]')[2]


@pytest.mark.parametrize(("name", "unit"), [("passenger_count", "event"), ("usertype", "event"), ("userid", "user")])
def test_a_number_of_users_is_no_user(name: str, unit: str) -> None:
    """It is offered whom to protect by the names of fields."""
    asked = Interview({}, [FieldSeen(name, "number"), FieldSeen("x", "number")], Silent(), None, Path())
    asked._unit(ENGINES["spatial"])
    assert asked.answers["privacy.unit"] == unit


class Silent:
    """Takes what is offered."""

    def ask(self, text: str, default: str | None, choices: Sequence[tuple[str, str]]) -> str:
        return default or "x"

    def say(self, text: str) -> None: ...


def test_what_has_no_usual_answer_is_named_with_its_option(place: Path) -> None:
    code, _, also = call("init", "--yes", "--out", "job.toml", "--engine", "spatial", "--from", "rides.csv")
    assert code == 2
    for key, how in (
        ("privacy.max_contributions", "--max-contributions N"),
        ("domain.bounds", "--set 'domain.bounds=[N, N, N, N]'"),
    ):
        assert f"  {key}\n    missing" in also
        assert f"fix: add {how}" in also
    assert not Path("job.toml").exists()
    assert not Path("user.key").exists()
    machine = json.loads(call("init", "--yes", "--json")[1])
    assert {"engine", "source", "time.field"} <= {each["key"] for each in machine["problems"]}


def test_every_option_that_is_named_is_one() -> None:
    options = {option for each in typer.main.get_command(build_app()).commands["init"].params for option in each.opts}  # type: ignore[attr-defined]
    assert {how.split()[0] for how in OPTIONS.values()} <= options


def test_a_refused_answer_is_named_with_its_option(place: Path) -> None:
    code, _, also = call(
        "init", "--yes", "--out", "job.toml", "--from", "rides.csv", "--timezone", "Europe/Berln", "--epsilon", 0,
        *settings("spatial", "box"),
    )  # fmt: skip
    assert code == 2
    assert 'did you mean "Europe/Berlin"?: --timezone ZONE' in also
    assert "--epsilon NUMBER" in also
    assert not Path("job.toml").exists()
    assert "no such engine" in call("init", "--yes", "--engine", "x", "--topic", "t", "--time-field", "at")[2]
    assert "no value" in call("init", "--yes", "--set", "time.grace")[2]


def test_the_user_key_is_made_for_this_user_alone_and_never_again(place: Path) -> None:
    arguments = ("init", "--yes", "--from", "rides.csv", "--out", "job.toml", *settings("spatial", "box"))
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


TYPED = """spatial
app.rides

at

Europe/Berlin
soon
15min
now
user
rider_id
x
box


1, 2
13, 52, 14, 53
7

0.5
"""


def test_a_person_is_asked_again_where_an_answer_cannot_be_used(place: Path) -> None:
    code, said, also = call("init", "--from", "rides.csv", "--out", "job.toml", typed=TYPED)
    assert code == 0, also
    assert "wrote job.toml: stream rides, app.rides -> rides.synthetic, engine spatial" in said
    assert "write a number and a unit" in also
    assert "type one of box, geojson, zones" in also
    assert "these are 2, and 4 are needed" in also
    assert "no record that was looked at has this field" not in also
    for spec in ENGINES.values():
        assert spec.summary in also
    assert "lon (number)" in also
    assert not private_in(also)
    stream = load_config("job.toml").streams[0]
    assert str(stream.privacy.epsilon) == "0.5"
    assert stream.privacy.max_contributions == 7
    assert stream.time.timezone == "Europe/Berlin"
    assert Path("user.key").exists()


def test_a_person_is_told_what_is_refused_and_mends_it(place: Path) -> None:
    typed = TYPED.replace("Europe/Berlin", "Berlin") + "Europe/Berlin\n"
    code, _, also = call("init", "--from", "rides.csv", "--out", "job.toml", typed=typed)
    assert code == 0, also
    assert "time.timezone" in also
    assert "is not a known time zone" in also
    assert load_config("job.toml").streams[0].time.timezone == "Europe/Berlin"


def test_a_person_chooses_fields_and_says_what_each_can_be(place: Path) -> None:
    usual = ("init", "--from", "rides.csv", "--out", "job.toml", "--unit", "event", "--overwrite")
    answers = [
        "tabular",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        " , ",
        "zone, fare",
        "north, south",
        "no",
        "0, 10, 50",
        "no",
        "yes",
        "",
    ]
    code, _, also = call(*usual, typed="\n".join(answers) + "\n")
    assert code == 0, also
    assert "name at least one" in also
    assert "zone: All values that there are" in also
    assert not private_in(also)
    zone, fare = load_config("job.toml").streams[0].domain.attributes  # type: ignore[attr-defined]
    assert (zone.field, zone.values, zone.missing) == ("zone", ("north", "south"), False)
    assert (fare.field, fare.edges, fare.missing) == ("fare", (0, 10, 50), True)
    code, _, also = call(*usual, typed="\n".join(["series", "", "", "", "", "", "", "", "-", "", ""]) + "\n")
    assert code == 0, also
    [count] = load_config("job.toml").streams[0].domain.series  # type: ignore[attr-defined]
    assert (count.name, count.of) == ("events", "count")


def test_who_stops_answering_gets_nothing_written(place: Path) -> None:
    code, _, also = call("init", "--from", "rides.csv", "--out", "job.toml", typed="spatial\n")
    assert code == 2
    assert "nothing is written" in also
    assert not Path("job.toml").exists()


def test_every_key_is_explained_by_a_comment(place: Path) -> None:
    """What was answered, and what else there is."""
    assert call("init", "--yes", "--from", "rides.csv", "--out", "job.toml", *settings("spatial", "box"))[0] == 0
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
    kafka = _cluster("kafka:9093")
    assert (kafka.bootstrap, kafka.security_protocol) == ("kafka:9093", "SSL")
    monkeypatch.setenv("PRIVSTREAM_KAFKA__SECURITY_PROTOCOLL", "SSL")
    with pytest.raises(ConfigError, match="did you mean"):
        _cluster("kafka:9093")
    monkeypatch.delenv("PRIVSTREAM_KAFKA__SECURITY_PROTOCOLL")
    for wrong in ("kafka", "kafka:99999999"):
        assert "--bootstrap host:9092" in call("init", "--yes", "--topic", "t", "--bootstrap", wrong)[2]
