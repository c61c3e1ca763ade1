"""`split` of a stream: its shapes, the streams that it is, and what would break its claim."""

from __future__ import annotations

import pytest

from schemas.config import Config, ConfigError, Stream, parse_config, with_overrides

SPLIT = 'split = { field = "borough", parts = { manhattan = ["Manhattan"], rest = ["Bronx", "Queens"] } }'
USER = 'user = "driver"\nmax_contributions = 2'
EVENT = 'unit = "event"'
BOX = 'kind = "box"\nx = "x"\ny = "y"\nbounds = [0.0, 0.0, 1.0, 1.0]'
TABLE = 'kind = "table"\n[[streams.domain.attributes]]\nfield = "borough"\nvalues = ["Manhattan", "Bronx", "Queens"]'


def written(
    split: str = SPLIT, privacy: str = EVENT, domain: str = BOX, *, name: str = "taxi", engine: str = "spatial"
) -> str:
    return f"""
[[streams]]
name = "{name}"
engine = "{engine}"
source = "raw.taxi"
{split}
[streams.privacy]
epsilon = 1.0
{privacy}
[streams.time]
field = "at"
start = "2024-01-01T00:00:00"
step = "1d"
[streams.domain]
{domain}
"""


def config(*streams: str, head: str = "") -> Config:
    return parse_config(f'{head}[kafka]\nbootstrap = "localhost:9092"\n' + "".join(streams))


def refused(*streams: str, head: str = "") -> list[tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        config(*streams, head=head)
    return [(each.key, each.reason, each.fix) for each in caught.value.problems]


def test_a_split_stream_is_the_streams_of_its_parts() -> None:
    found = config(written(name="before", split=""), written())
    assert [stream.name for stream in found.streams] == ["before", "taxi-manhattan", "taxi-rest"]
    assert [stream.whole for stream in found.streams] == ["before", "taxi", "taxi"]
    parts = [stream.part for stream in found.streams[1:]]
    assert [part.values for part in parts if part is not None] == [("Manhattan",), ("Bronx", "Queens")]
    assert {stream.source for stream in found.streams} == {"raw.taxi"}
    assert [stream.name for stream in Config.model_validate(found.explicit).streams] == [s.name for s in found.streams]


def test_of_a_list_each_value_is_a_part() -> None:
    found = config(written('split = { field = "zone", parts = [3, 7] }'))
    assert [stream.name for stream in found.streams] == ["taxi-3", "taxi-7"]
    assert [stream.part and stream.part.values for stream in found.streams] == [(3,), (7,)]


def test_a_part_stays_a_part_whatever_is_overridden() -> None:
    """A part that forgot what it is would have all events, and each event would cost its epsilon in each."""
    revised = with_overrides(config(written(privacy=USER)), epsilon="0.5")
    again = [stream.with_overrides(max_contributions=1).model_copy(update={"map": None}) for stream in revised.streams]
    for stream in (*revised.streams, *again):
        assert stream.part is not None
        assert stream.name == f"taxi-{stream.part.part}"
        assert stream.privacy.epsilon_fraction * 2 == 1


def fingerprints(split: str) -> dict[str, object]:
    return {stream.name: stream.fingerprint_fields() for stream in config(written(split)).streams}


def test_a_part_is_pinned_by_its_own_values() -> None:
    """So that a part may be added beside those that run, and none of these may change."""
    before = fingerprints(SPLIT)
    more = fingerprints(SPLIT.replace("{ manhattan", '{ far = ["Staten Island"], manhattan'))
    assert {name: more[name] for name in before} == before
    moved = fingerprints(SPLIT.replace('["Manhattan"]', '["Manhattan", "Harlem"]'))
    assert [name for name in before if moved[name] != before[name]] == ["taxi-manhattan"]
    assert fingerprints(SPLIT.replace('"Bronx", "Queens"', '"Queens", "Bronx"')) == before
    other = fingerprints(SPLIT.replace('"borough"', '"home"'))
    assert all(other[name] != before[name] for name in before)


S = "streams[0].split"
BAD = [
    ('"Bronx", "Queens"', '"Bronx", "Manhattan"', f"{S}.parts.rest", "also in part manhattan", "in one part"),
    ('"Bronx", "Queens"', '"Bronx", "Bronx"', f"{S}.parts.rest", "twice", "in one part"),
    ('"Bronx", "Queens"', "7", f"{S}.parts", "texts and numbers", "quotes"),
    ('"Bronx", "Queens"', "true", f"{S}.parts.rest", "neither a text nor a whole", "Queens"),
    ('"Bronx", "Queens"', "7.5", f"{S}.parts.rest", "neither a text nor a whole", "Queens"),
    ('["Bronx", "Queens"]', "[]", f"{S}.parts.rest", "no list of values", "square brackets"),
    ('["Bronx", "Queens"]', '"Bronx"', f"{S}.parts.rest", "no list of values", "square brackets"),
    (', rest = ["Bronx", "Queens"]', "", f"{S}.parts", "has 1 parts", "drop"),
    ("rest =", '"the rest" =', f"{S}.parts.the rest", "cannot be the name", "letters"),
    ('{ manhattan = ["Manhattan"], rest = ["Bronx", "Queens"] }', '["A", "A"]', f"{S}.parts", "twice", "once"),
    ('{ manhattan = ["Manhattan"], rest = ["Bronx", "Queens"] }', '["Staten Island", "B"]', f"{S}.parts", "name", "it"),
    ('{ manhattan = ["Manhattan"], rest = ["Bronx", "Queens"] }', "4", f"{S}.parts", "neither a list", "table"),
    (', parts = { manhattan = ["Manhattan"], rest = ["Bronx", "Queens"] }', "", f"{S}.parts", "missing", "parts ="),
    ('field = "borough", ', "", f"{S}.field", "missing", "field ="),
    ('field = "borough"', 'field = "borough", part = "rest"', f"{S}.part", "unknown key", "parts"),
    ('field = "borough"', 'field = "borough", whole = "x"', f"{S}.whole", "unknown key", "keys of"),
    ('"borough"', '"at"', f"{S}.field", "serves as time.field", "region"),
    ('"borough"', '"$nowhere"', f"{S}.field", "names no part of a record", "use $key"),
    ('name = "taxi"', f'name = "{"t" * 95}"', "streams[0].name", "longer than 100", "shorten"),
    ("bounds = [", 'op = "what"\nbounds = [', f"{S}.field", "with op a delete goes", "ttl"),
    (EVENT, USER.replace("driver", "borough"), f"{S}.field", "serves as privacy.user", "region"),
]


@pytest.mark.parametrize(("old", "new", "key", "reason", "fix"), BAD)
def test_what_would_break_the_claim_is_refused(old: str, new: str, key: str, reason: str, fix: str) -> None:
    text = written()
    assert old in text
    [(found, why, how)] = refused(text.replace(old, new))
    assert (found, reason in why, fix in how) == (key, True, True), (found, why, how)


def test_a_delete_that_repeats_the_field_may_be_split() -> None:
    found = config(written(domain=TABLE.replace("\n[[", '\nop = "what"\n[['), engine="tabular", privacy=USER))
    assert len(found.streams) == 2


def test_trips_and_fixed_populations_are_refused() -> None:
    trips = BOX + '\ntrip = "ride"'
    [(key, reason, fix)] = refused(written(domain=trips.replace("box", "trips"), engine="trajectory", privacy=USER))
    assert (key, "one trip" in reason, "topic" in fix) == (S, True, True)
    states = 'kind = "states"\nfield = "state"\nvalues = ["a", "b"]\npopulation = 10'
    members = 'unit = "replace"\nuser = "driver"\nmax_contributions = 2\nmax_per_step = 1'
    found = {
        key: (reason, fix) for key, reason, fix in refused(written(domain=states, engine="markov", privacy=members))
    }
    assert ("fixed population" in found[S][0], "topics" in found[S][1]) == (True, True)


def test_names_of_parts_are_names_of_streams() -> None:
    other = written(name="taxi-rest", split="")
    assert [key for key, _, _ in refused(written(), other)] == ["streams[0].name"]
    assert [key for key, _, _ in refused(written(), written(SPLIT.replace("rest", "more")))] == [
        "streams[1].name",
        "streams[1].name",
    ]
    [(key, reason, _)] = refused(written().replace("raw.taxi", "taxi-rest.synthetic"))
    assert (key, "output topic" in reason) == ("streams[0].source", True)
    assert "taxi-rest" in refused(written(), head='[job]\nname = "taxi-rest"\n')[0][1]


def test_what_was_one_stream_may_go_on_as_several() -> None:
    """The stream of the whole name is retired then, as that of any name that is no stream's."""
    assert len(config(written(), head='[job]\nretired = ["taxi"]\n').streams) == 2
    [(key, _, _)] = refused(written(), head='[job]\nretired = ["taxi-rest"]\n')
    assert key == "job.retired"


def test_a_field_that_is_computed_tells_parts_apart() -> None:
    mapped = written().replace(
        "[streams.privacy]", "[streams.map]\nborough = \"lookup('zones', to_string(zone))\"\n[streams.privacy]"
    )
    [(key, _, _)] = refused(mapped)
    assert key == "streams[0].map.borough"  # the table is missing, and the field is known
    found = config(mapped.replace("lookup('zones', to_string(zone))", "zone.borough"))
    assert all(isinstance(stream, Stream) and stream.map is not None for stream in found.streams)


READINGS = """kind = "series"
fields = [{ name = "load", of = "value", limits = [0, 100], sensitivity = 1 }]
[streams.options]
horizon = 10"""
OF_READINGS = "delta = 1e-6"


def readings(split: str, mapped: str = "") -> str:
    return written(split, OF_READINGS, READINGS + mapped, engine="series")


@pytest.mark.parametrize(
    ("split", "mapped", "key"),
    [
        ('split = { field = "load", parts = { low = [1, 2], high = [3, 4] } }', "", "split.field"),
        (SPLIT, "[streams.map]\nborough = \"load > `3` && 'Manhattan' || 'Bronx'\"", "split.field"),
        (SPLIT, '[streams.map]\nborough = "to_string(@)"', "split.field"),
        ("", "[streams.map]\ndrop = 'load < `4`'", "map.drop"),
        ("", "[streams.map]\nload = 'a.kw'\ndrop = 'a.kw < `4`'", "map.drop"),
        ("", "[streams.map]\nload = 'a.kw'\ndrop = 'max(values(a)) < `4`'", "map.drop"),
        ("", "[streams.map]\nload = 'sum(values(a))'\ndrop = 'a.kw < `4`'", "map.drop"),
        ("", "[streams.map]\nload = '{x: kw}.x'\ndrop = '{y: kw}.y < `4`'", "map.drop"),
        ("", "[streams.map]\nload = 'sum(*.kw)'\ndrop = 'max(*.kw) < `4`'", "map.drop"),
        (
            "split = { field = '\"a.kw\"', parts = { low = [1], high = [2] } }",
            "[streams.map]\nload = '\"a.kw\"'",
            "split.field",
        ),
        ("", "[streams.map]\nat = 'load < `4` && began || ended'", "time.field"),
        ("", "[streams.map]\nload = 'kw < `4` && kw'", "map.load"),
        ("", "[streams.map]\nload = '[kw][?@ < `4`] | [0]'", "map.load"),
        ("", "[streams.map]\nload = 'm[?kw < `4`].kw | [0]'", "map.load"),
        ("", "[streams.map]\nload = 'm[].kw | [?@ < `4`] | sum(@)'", "map.load"),
        ("", "[streams.map]\nload = 'max_by(m, &kw).kw'", "map.load"),
        ("", "[streams.map]\nload = \"kw != '-9' && kw\"", "map.load"),
        ("", "[streams.map]\nload = 'kw != `-9` && kw'", "map.load"),
        ("", "[streams.map]\nload = \"kw < 'n' && kw\"", "map.load"),
        ("", "[streams.map]\nload = 'map(&(kw < `4` && kw), m) | [0]'", "map.load"),
        ("", "[streams.map]\nload = 'contains(m, kw) && kw'", "map.load"),
        ("", "[streams.map]\nload = \"to_number(join('.', [whole, rest]))\"", "map.load"),
        ("", "[streams.map]\nload = '!(of.kw < `4`) && max(values(of))'", "map.load"),
        ("", "[streams.map]\nload = 'meters[?kw > `3`].kw | [0]'", "map.load"),
        ("", "[streams.map]\nload = 'avg(meters[?kw > `3`].kw)'", "map.load"),
        ("", "[streams.map]\nload = 'sum(map(&(kw > `3` && kw), meters))'", "map.load"),
        ("", "[streams.map]\nload = '{sum: kw > `3` && kw}.sum'", "map.load"),
        ("", "[streams.map]\nload = \"starts_with(to_string(kw), '3') && kw\"", "map.load"),
        ("", "[streams.map]\nload = \"to_number(reverse(join('', [to_string(kw)])))\"", "map.load"),
        ("", "[streams.map]\nload = '!(kw > `3`) && kw'", "map.load"),
    ],
)
def test_the_value_of_a_reading_does_not_decide_whether_there_is_one(split: str, mapped: str, key: str) -> None:
    """A user moves it by its sensitivity, and a step without a reading says so without any noise."""
    [(found, reason, _)] = refused(readings(split, "\n" + mapped))
    assert found.endswith(key)
    assert "which a user can move" in reason


@pytest.mark.parametrize(
    "mapped",
    [
        "",
        "[streams.map]\nborough = 'of.borough'\nload = 'of.load'\ndrop = \"of.kind == 'test'\"",
        "[streams.map]\nborough = 'of[0].borough'\nload = 'sum(of[*].load)'\nat = 'of[].at | [0]'",
        "[streams.map]\nload = \"m[?kind == 'main'].kw | [0]\"",
        "[streams.map]\nload = \"type(kw) == 'number' && kw || other.kw\"",
        "[streams.map]\nload = 'max_by(m, &priority).kw'",
        "[streams.map]\nload = \"map(&(good && abs(kw)), m[?kind == 'main']) | avg(@)\"",
        "[streams.map]\nload = 'length(items)'",
        "[streams.map]\nload = \"kw != `null` && kw != 'n/a' && broken != `true` && kw\"",
        "[streams.map]\nload = 'not_null(kw, !(broken) && values(of) | max(@))'",
    ],
)
def test_another_field_of_a_reading_may_decide(mapped: str) -> None:
    assert len(config(readings(SPLIT, "\n" + mapped)).streams) == 2


def test_a_reading_does_not_decide_whether_there_is_another_one() -> None:
    two = 'fields = [{ name = "load", of = "value", limits = [0, 100], sensitivity = 1 }, { name = "v", of = "value"'
    text = readings("", "\n[streams.map]\nload = 'v < `4` && kw'")
    [(found, _, _)] = refused(text.replace('fields = [{ name = "load", of = "value"', two))
    assert found.endswith("map.load")


def test_a_place_beside_the_value_is_one_however_it_is_written() -> None:
    beside = readings("").replace('"load"', "'$key.load'").replace('"at"', """'$key."load"'""")
    [(found, _, _)] = refused(beside.replace('source = "raw.taxi"', 'source = "raw.taxi"\nkey_format = "json"'))
    assert found.endswith("time.field")


@pytest.mark.parametrize("load", ["sum(values(@))", "max(*.kw)", "@.kw", "at"])
@pytest.mark.parametrize("time", ['"$timestamp"', """'$key.at'"""])
def test_a_place_beside_the_value_is_none_in_it(load: str, time: str) -> None:
    """An expression sees the value alone, whatever of it."""
    text = readings("", f"\n[streams.map]\nload = '{load}'")
    text = text.replace('source = "raw.taxi"', 'source = "raw.taxi"\nkey_format = "json"')
    beside = text.replace('field = "at"', f'field = {time}\nformat = "ms"')
    assert beside != text
    assert len(config(beside).streams) == 1
