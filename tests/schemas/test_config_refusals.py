"""Every refusal names the key, the reason and the fix; all of them at once; and never a secret."""

from __future__ import annotations

import re

import pytest

from schemas.config import ConfigError, Stream, config_from_mapping, parse_config

GOOD = """
[job]
name = "job"
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "taxi"
engine = "spatial"
source = "raw.taxi"
audit = "audit.taxi"
[streams.privacy]
epsilon = 1.0
unit = "user"
user = "hack_license"
max_contributions = 2
[streams.time]
field = "pickup_datetime"
format = "%Y-%m-%d %H:%M:%S"
timezone = "America/New_York"
start = "2016-01-01T00:00:00"
step = "6h"
clock = "replay"
[streams.domain]
kind = "box"
x = "lon"
y = "lat"
bounds = [-74.05, 40.60, -73.75, 40.90]
[streams.options]
depth = 18
"""
SECOND = GOOD[GOOD.index("[[streams]]") :]

P, T, D, O = "streams[0].privacy", "streams[0].time", "streams[0].domain", "streams[0].options"  # noqa: E741
USER = 'unit = "user"\nuser = "hack_license"\nmax_contributions = 2'
SASL = 'bootstrap = "localhost:9092"\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n'
SCRAM = '''[kafka]
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "u"
sasl_password_file = "p"'''
BEARER = '''[kafka]
security_protocol = "SASL_SSL"
sasl_mechanism = "OAUTHBEARER"
sasl_token_file = "t"'''
FORMAT, START = 'format = "%Y-%m-%d %H:%M:%S"', 'start = "2016-01-01T00:00:00"'
BOUNDS = "bounds = [-74.05, 40.60, -73.75, 40.90]"

# what is replaced, by what, key, fragment of the reason, fragment of the fix
BAD: list[tuple[str, str, str, str, str]] = [
    ('step = "6h"', 'step = "14ms"', f"{T}.step", "over within a year", "15 ms"),
    # privacy
    ("epsilon = 1.0", "epsilon = 0", f"{P}.epsilon", "greater than 0", "positive"),
    ("epsilon = 1.0", "epsilon = -0.5", f"{P}.epsilon", "greater than 0", "positive"),
    ("epsilon = 1.0", "epsilon = nan", f"{P}.epsilon", "not finite", "1.0"),
    ("epsilon = 1.0", "epsilon = inf", f"{P}.epsilon", "not finite", "1.0"),
    ("epsilon = 1.0", "epsilon = 1e-9", f"{P}.epsilon", "less than a millionth", "raise epsilon"),
    ("epsilon = 1.0", "epsilon = 5000", f"{P}.epsilon", "protects nobody", "1.0"),
    ("epsilon = 1.0", "epsilon = 1e-999999999", f"{P}.epsilon", "too large, too small", "1e-12"),
    ("epsilon = 1.0", "epsilon = true", f"{P}.epsilon", "not a number", "1.0"),
    ("epsilon = 1.0", 'epsilon = "one"', f"{P}.epsilon", "not a number", "1.0"),
    ("epsilon = 1.0", "", f"{P}.epsilon", "missing", "add epsilon = 1.0 to [streams.privacy]"),
    ("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6", f"{P}.delta", "uses no delta", "delta = 0.0"),
    ("epsilon = 1.0", "epsilon = 1.0\ndelta = 1", f"{P}.delta", "below 1", "0.0"),
    ("epsilon = 1.0", "epsilon = 1.0\ndelta = nan", f"{P}.delta", "not a finite", "finite"),
    ('user = "hack_license"', "", f"{P}.user", "can bound only users", 'unit = "event"'),
    ("max_contributions = 2", "", f"{P}.max_contributions", "without a bound", "max_contributions = 2"),
    ("max_contributions = 2", "max_contributions = 0", f"{P}.max_contributions", "at least 1", "1 or more"),
    ("max_contributions = 2", "max_contributions = true", f"{P}.max_contributions", "whole number", "whole number"),
    ("max_contributions = 2", "max_contributions = 2.0", f"{P}.max_contributions", "whole number", "whole number"),
    ("max_contributions = 2", 'max_contributions = "2"', f"{P}.max_contributions", "whole number", "without quotes"),
    ("_contributions = 2", "_contributions = 2\nmax_per_step = 3", f"{P}.max_per_step", "more than", "lower"),
    ("_contributions = 2", "_contributions = 2\nmax_per_step = 0", f"{P}.max_per_step", "at least 1", "1 or more"),
    ("_contributions = 2", "_contributions = 2\nsurplus = 0", f"{P}.surplus", "at least 1", "1 or more"),
    (USER, 'unit = "event"\nsurplus = 5', f"{P}.surplus", "single events", "remove"),
    (USER, 'unit = "event"\nuser = "id"', f"{P}.user", "single events", 'unit = "user"'),
    (USER, 'unit = "event"\nmax_contributions = 2', f"{P}.max_contributions", "single events", "remove"),
    (USER, 'unit = "event"\nper = "30d"', f"{P}.per", "single events", "remove"),
    ('unit = "user"', 'unit = "replace"', f"{P}.unit", "needs engine markov", 'unit = "user"'),
    ('unit = "user"', 'unit = "household"', f"{P}.unit", "not one of", '"user"'),
    ("_contributions = 2", '_contributions = 2\nper = "7h"', f"{P}.per", "whole number of steps of 6h", "multiple"),
    ("_contributions = 2", '_contributions = 2\nper = "0s"', f"{P}.per", "longer than 0s", "positive"),
    ("[streams.privacy]", "[streams.privcy]", "streams[0].privcy", "unknown key", "did you mean privacy?"),
    ("epsilon = 1.0", "epsilno = 1.0", f"{P}.epsilno", "unknown key", "did you mean epsilon?"),
    # time
    ('step = "6h"', "", f"{T}.step", "missing", 'step = "6h"'),
    ('step = "6h"', 'step = "0s"', f"{T}.step", "longer than 0s", "6h"),
    ('step = "6h"', 'step = "-6h"', f"{T}.step", "longer than 0s", "6h"),
    ('step = "6h"', "step = 6", f"{T}.step", "without a unit", '"6h"'),
    ('step = "6h"', 'step = "6"', f"{T}.step", "neither a duration", '"6h"'),
    ('step = "6h"', 'step = "1 fortnight"', f"{T}.step", "neither a duration", '"1d"'),
    ('step = "6h"', 'step = "1 dya"', f"{T}.step", "calendar units", '"1 day"'),
    ('step = "6h"', 'step = "0 days"', f"{T}.step", "calendar units", '"1 day"'),
    ('step = "6h"', 'step = "1.5 months"', f"{T}.step", "calendar units", '"3 months"'),
    ('step = "6h"', 'step = "1day"', f"{T}.step", "calendar units", '"1 day"'),
    ('step = "6h"', 'step = "101 years"', f"{T}.step", "hundred years", "fewer"),
    ('step = "6h"', 'step = "0.5us"', f"{T}.step", "microseconds", "round"),
    ('step = "6h"', 'step = "999999w"', f"{T}.step", "hundred years", "shorter"),
    ('step = "6h"', 'step = "6h"\ngrace = "-1s"', f"{T}.grace", "negative", '"0s"'),
    ('step = "6h"', 'step = "6h"\nmax_ahead = -1', f"{T}.max_ahead", "at least 0", "0 or more"),
    ('step = "6h"', 'step = "6h"\nepsilon = 1', f"{T}.epsilon", "unknown key", "[streams.privacy]"),
    (START, "", f"{T}.start", "missing", "start ="),
    (START, 'start = "2016-13-01"', f"{T}.start", "not an ISO time", "2016-01-01T00:00:00"),
    (START, "start = 1451606400", f"{T}.start", "not an ISO time", "2016-01-01T00:00:00"),
    (START, "start = 2016-01-01T00:00:00Z", f"{T}.start", "offset", "without an offset"),
    (START, 'start = "2016-03-13T02:30:00"', f"{T}.start", "does not exist", "2016-03-13T03:30:00"),
    (START, 'start = "9999-12-31T23:00:00"', f"{T}.start", "end of the calendar", "2016-01-01T00:00:00"),
    (START, 'start = "now"', f"{T}.start", "replay", "local time of the first step"),
    ('"America/New_York"', '"America/NewYork"', f"{T}.timezone", "not a known", "America/New_York"),
    ('"America/New_York"', '"../../etc/passwd"', f"{T}.timezone", "not a known", "UTC"),
    ('"America/New_York"', '""', f"{T}.timezone", "not a known", "UTC"),
    (FORMAT, 'format = "unix"', f"{T}.format", "neither iso", "%Y-%m-%d"),
    (FORMAT, 'format = "%H:%M"', f"{T}.format", "year, month and day", "%Y-%m-%d"),
    (FORMAT, 'format = "%Y-%m-%d %H:%M %Z"', f"{T}.format", "%Z, which takes names of the machine's own zone", "%z"),
    (FORMAT, 'format = "%Y-%m-%d %Q"', f"{T}.format", "not a usable", "%Y-%m-%d"),
    ('clock = "replay"', 'clock = "count"', f"{T}.clock", "not one of", '"wall"'),
    ('field = "pickup_datetime"', 'field = ""', f"{T}.field", "empty", "name"),
    # domain
    (BOUNDS, "bounds = [-73.75, 40.6, -74.05, 40.9]", f"{D}.bounds", "inverted: xmin", "xmin < xmax"),
    (BOUNDS, "bounds = [-74.05, 40.9, -73.75, 40.6]", f"{D}.bounds", "inverted: ymin", "ymin < ymax"),
    (BOUNDS, "bounds = [-74.05, 40.6, -74.05, 40.9]", f"{D}.bounds", "degenerate", "xmin < xmax"),
    (BOUNDS, "bounds = [0, 1e15, 1, 1000000000000001]", f"{D}.bounds", "degenerate", "ymin < ymax"),
    (BOUNDS, "bounds = [-1.7e308, 0, 1.7e308, 1]", f"{D}.bounds", "degenerate", "xmin < xmax"),
    (BOUNDS, "bounds = [nan, 40.6, -73.75, 40.9]", f"{D}.bounds[0]", "finite", "finite"),
    (BOUNDS, "bounds = [-74.05, 40.6, -73.75, inf]", f"{D}.bounds[3]", "finite", "finite"),
    (BOUNDS, "bounds = [-74.05, 40.6, -73.75]", f"{D}.bounds[3]", "missing", "entries"),
    (BOUNDS, 'bounds = ["a", 40.6, -73.75, 40.9]', f"{D}.bounds[0]", "not a number", "without quotes"),
    (BOUNDS, "bounds = 3", f"{D}.bounds", "list", "square brackets"),
    (BOUNDS, "", f"{D}.bounds", "missing", "bounds ="),
    ('kind = "box"', 'kind = "globe"', f"{D}.kind", "not available in this version; available: box", "box"),
    ('kind = "box"', 'kind = "sphere"', f"{D}.kind", "not available in this version; available: box", "box"),
    ('kind = "box"', "", f"{D}.kind", "missing", 'kind = "box"'),
    ('kind = "box"', 'kind = "table"', f"{D}.kind", 'engine "spatial" has no domain of kind "table"', 'kind = "box"'),
    ('kind = "box"', 'kind = "zones"', f"{D}.bounds", "unknown key", "keys of [streams.domain] are kind"),
    ('y = "lat"', 'y = "lon"', f"{D}.y", "already serves as domain.x", "another field"),
    ('y = "lat"', 'y = "pickup_datetime"', f"{D}.y", "already serves as time.field", "another field"),
    ('y = "lat"', 'y = "hack_license"', f"{D}.y", "already serves as privacy.user", "another field"),
    ('y = "lat"', 'y = "lat"\nop = "lat"', f"{D}.y", "already serves as domain.op", "another field"),
    ('y = "lat"', 'y = "lat"\nop = "action"\nttl = "6h"', f"{D}.ttl", "both delete", "remove the other"),
    ('y = "lat"', 'y = "lat"\nttl = "7h"', f"{D}.ttl", "whole number of steps", "multiple"),
    ('y = "lat"', 'y = "lat"\nttl = "0s"', f"{D}.ttl", "longer than 0s", "positive"),
    # options
    ("depth = 18", "depth = 1", f"{O}.depth", "at least 2", "2 or more"),
    ("depth = 18", "depth = 31", f"{O}.depth", "at most 30", "30 or less"),
    ("depth = 18", "initial_steps = 0", f"{O}.initial_steps", "at least 1", "1 or more"),
    ("depth = 18", "split = 1", f"{O}.split", "between 0 and 1", "0.5"),
    ("depth = 18", "split = 0.0", f"{O}.split", "between 0 and 1", "0.5"),
    ("depth = 18", "threshold = -1", f"{O}.threshold", "at least 0", "0 or more"),
    ("depth = 18", "threshold = nan", f"{O}.threshold", "finite", "finite"),
    ("depth = 18", "max_leaves = 1", f"{O}.max_leaves", "at least 2", "2 or more"),
    ("depth = 18", "forecast = 5", f"{O}.forecast", "unknown key", "depth, initial_steps"),
    ("depth = 18", "horizon = 5", f"{O}.horizon", "needs no horizon", "remove"),
    ("depth = 18", 'counter = "kary"', f"{O}.horizon", "number of releases", "unbounded-kary"),
    ("depth = 18", 'counter = "toeplitz"', f"{O}.counter", "not one of", "unbounded-kary"),
    ("depth = 18", 'counter = "hybrid"', f"{O}.counter", "has no effect in mode", "paper"),
    # stream
    ('name = "taxi"', 'name = "ta.xi"', "streams[0].name", "not allowed", "letters"),
    ('name = "taxi"', 'name = "täxi"', "streams[0].name", "not allowed", "letters"),
    ('name = "taxi"', 'name = "taxi\\n"', "streams[0].name", "not allowed", "letters"),
    ('name = "taxi"', "", "streams[0].name", "missing", "[[streams]]"),
    ('name = "taxi"', 'name = "job"', "streams[0].name", "name of the job", "rename"),
    ('name = "taxi"', f'name = "{"a" * 101}"', "streams[0].name", "too long", "shorter"),
    ('engine = "spatial"', 'engine = "spatail"', "streams[0].engine", "not available", "spatial"),
    ('engine = "spatial"', 'engine = "spatial"\nmode = "fast"', "streams[0].mode", "default, paper", "default"),
    ('engine = "spatial"', 'engine = "spatial"\npublish_delay = "-1s"', "streams[0].publish_delay", "negative", "0s"),
    ('engine = "spatial"', 'engine = "spatial"\npartitioner = "x"', "streams[0].partitioner", "not one of", "crc32"),
    ('engine = "spatial"', 'engine = "spatial"\nformat = "xml"', "streams[0].format", "not one of", "json"),
    (
        'engine = "spatial"',
        'engine = "spatial"\nformat = "avro"',
        "streams[0].format",
        "no schema registry",
        "[kafka.registry]",
    ),
    ('engine = "spatial"', 'engine = "spatial"\nepsilon = 1.0', "streams[0].epsilon", "unknown", "[streams.privacy]"),
    ('source = "raw.taxi"', 'source = "raw taxi"', "streams[0].source", "legal Kafka topic", "letters"),
    ('source = "raw.taxi"', 'source = ".."', "streams[0].source", "legal Kafka topic", "letters"),
    ('source = "raw.taxi"', 'source = ["a"]', "streams[0].source", "text", "quotes"),
    ('source = "raw.taxi"', 'source = "taxi.ledger"', "streams[0].source", "output topic", "another topic"),
    ('source = "raw.taxi"', 'source = "taxi_ledger"', "streams[0].source", "output topic", "another topic"),
    ('source = "raw.taxi"', 'source = "job.blocks"', "streams[0].source", "private topic", "another"),
    ('source = "raw.taxi"', 'source = "job-state-changelog"', "streams[0].source", "private topic", "another"),
    ('audit = "audit.taxi"', 'audit = "raw.taxi"', "streams[0].audit", "source of streams[0]", "own"),
    ('audit = "audit.taxi"', 'audit = "taxi.utility"', "streams[0].audit", "output topic", "another topic"),
    # job, kafka and the file
    ('bootstrap = "localhost:9092"', "", "kafka.bootstrap", "missing", "localhost:9092"),
    ("localhost:9092", "localhost", "kafka.bootstrap", "host:port", "host:9092"),
    ("localhost:9092", "kafka://localhost:9092", "kafka.bootstrap", "host:port", "no scheme"),
    ("localhost:9092", "localhost:99999", "kafka.bootstrap", "host:port", "host:9092"),
    ("[kafka]", "[kafka]\npartitions = 0", "kafka.partitions", "at least 1", "1 or more"),
    ("[kafka]", "[kafka]\nsession_timeout_s = 1", "kafka.session_timeout_s", "at least 6", "6 or more"),
    ("[kafka]", "[kafka]\nbootstrp = 1", "kafka.bootstrp", "unknown key", "did you mean bootstrap?"),
    ("[kafka]", '[kafka]\nsecurity_protocol = "TLS"', "kafka.security_protocol", "not one of", "SASL_SSL"),
    ("[kafka]", '[kafka]\nsecurity_protocol = "SASL_SSL"', "kafka.sasl_username", "missing", "add sasl_username"),
    ("[kafka]", '[kafka]\nsasl_username = "u"', "kafka.sasl_username", "ignored", "SASL_SSL"),
    ("[kafka]", '[kafka]\nsasl_token_file = "t"', "kafka.sasl_token_file", "ignored", "SASL_SSL"),
    ("[kafka]", f'{SCRAM}\nsasl_token_file = "t"', "kafka.sasl_token_file", "ignored", "OAUTHBEARER"),
    ("[kafka]", BEARER.replace("sasl_token_file", "#"), "kafka.sasl_token_file", "missing", "add sasl_token_file"),
    ("[kafka]", f'{BEARER}\nsasl_username = "u"', "kafka.sasl_username", "ignored", "the token names the user"),
    ("[kafka]", f'{BEARER}\nsasl_password_file = "p"', "kafka.sasl_password_file", "ignored", "remove the key"),
    ("[kafka]", '[kafka]\nsecurity_protocol = "SASL_SSL"', "kafka.sasl_mechanism", "missing", "add sasl_mechanism"),
    ("[kafka]", '[kafka]\nssl_key_password_file = "p"', "kafka.ssl_key_password_file", "ignored", "SSL"),
    (
        "[kafka]",
        '[kafka]\nsecurity_protocol = "SSL"\nssl_key_password_file = "p"',
        "kafka.ssl_key_password_file",
        "no private key",
        "ssl_certfile and ssl_keyfile",
    ),
    ("[kafka]", '[kafka]\nssl_cafile = "ca.pem"', "kafka.ssl_cafile", "ignored", "SSL"),
    ("[kafka]", '[kafka]\nsecurity_protocol = "SSL"\nssl_keyfile = "k"', "kafka.ssl_certfile", "missing", "add"),
    ("[kafka]", '[kafka]\nsecurity_protocol = "SSL"\nssl_cafile = 7', "kafka.ssl_cafile", "path", "quotes"),
    ('name = "job"', 'name = "my job"', "job.name", "not allowed", "letters"),
    ('name = "job"', "http_port = 70000", "job.http_port", "at most 65535", "65535 or less"),
    ("[job]", "bootstrap = 1\n[job]", "bootstrap", "unknown key", "move it to [kafka]"),
    ("[job]", "[jobs]", "jobs", "unknown key", "did you mean job?"),
    (SECOND, "", "streams", "missing", "[[streams]]"),
    (SECOND, "[streams]\nname = 'a'", "streams", "list", "[[streams]]"),
    (GOOD, "streams = []\n[kafka]\nbootstrap = 'a:1'", "streams", "empty", "[[streams]]"),
    (GOOD, "kafka = 3\nstreams = [4]", "kafka", "table", "section"),
    (GOOD, "a = [", "the file", "not TOML", "double quotes"),
]


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return caught.value


def test_the_good_one_is_good() -> None:
    assert parse_config(GOOD).streams[0].name == "taxi"
    assert len(BAD) >= 40


@pytest.mark.parametrize(("old", "new", "key", "reason", "fix"), BAD, ids=[f"{row[2]}: {row[3]}" for row in BAD])
def test_each_refusal_names_key_reason_and_fix_plainly(old: str, new: str, key: str, reason: str, fix: str) -> None:
    assert old in GOOD
    error = refused(GOOD.replace(old, new, 1))
    assert not re.search(r"pydantic|validation|type=|input_value|Traceback|NoneType|\{\w*\}", str(error)), error
    problems = error.problems
    found = [problem for problem in problems if problem.key == key]
    assert found, [problem.key for problem in problems]
    assert any(reason in problem.reason and fix in problem.fix for problem in found), found
    if key.startswith("streams[0].") and key != "streams[0].name":
        assert all(problem.reason.startswith('stream "taxi": ') for problem in found)


@pytest.mark.parametrize(("key", "line"), [("op", 'op = "action"'), ("ttl", 'ttl = "6h"')])
def test_a_user_with_measured_deletes_needs_two_contributions(key: str, line: str) -> None:
    text = GOOD.replace('y = "lat"', f'y = "lat"\n{line}').replace('name = "taxi"', 'name = "taxi"\nmode = "paper"', 1)
    assert parse_config(text).streams[0].contributions == 2
    (problem,) = refused(text.replace("max_contributions = 2", "max_contributions = 1")).problems
    assert problem.key == f"{P}.max_contributions"
    assert f"with {key} an insert and its delete" in problem.reason
    assert "2 or more" in problem.fix


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ("", "", "streams[1].name", "already the name of streams[0]"),
        ('name = "taxi"', 'name = "raw"\nmode="x"', "streams[1].mode", "no such mode"),
        ('source = "raw.taxi"', 'source = "taxi.synthetic"', "streams[1].source", "output topic"),
        ('audit = "audit.taxi"', 'audit = "raw.taxi"', "streams[1].audit", "source of streams[0]"),
        ('source = "raw.taxi"', 'source = "audit.taxi"', "streams[0].audit", "source of streams[1]"),
    ],
)
def test_streams_that_clash(old: str, new: str, key: str, reason: str) -> None:
    problems = refused(GOOD + SECOND.replace(old, new, 1)).problems
    assert any(problem.key == key and reason in problem.reason for problem in problems), problems


def test_two_streams_may_share_a_source_and_an_audit_topic() -> None:
    assert len(parse_config(GOOD + SECOND.replace('"taxi"', '"other"', 1)).streams) == 2


@pytest.mark.parametrize("kind", ["", 'kind = "bxo"', 'kind = "table"', "kind = []"])
def test_a_domain_without_a_kind_names_those_of_its_engine_and_all_else_that_is_wrong(kind: str) -> None:
    text = GOOD.replace('kind = "box"', kind, 1).replace('y = "lat"', 'yy = "lat"', 1)
    problems = {problem.key: problem for problem in refused(text).problems}
    assert set(problems) == {f"{D}.kind", f"{D}.y", f"{D}.yy"}
    assert 'kind = "box"' in problems[f"{D}.kind"].fix
    assert "box, geojson, zones" in str(problems[f"{D}.kind"]), "kinds of other engines are no help"


def test_all_problems_are_listed_at_once_whatever_else_is_broken() -> None:
    text = GOOD
    for old, new in [
        ("epsilon = 1.0", "epsilno = 1.0"),
        ('step = "6h"', 'step = "6"'),
        ('y = "lat"', 'y = "lon"'),
        ("depth = 18", "depth = 99"),
        ('audit = "audit.taxi"', 'audit = "raw.taxi"'),
        ("[kafka]", '[kafka]\nssl_cafile = "x"'),
        ('engine = "spatial"', 'engine = "sphere"'),
    ]:
        text = text.replace(old, new, 1)
    keys = [problem.key for problem in refused(text).problems]
    assert set(keys) == {
        "kafka.ssl_cafile",
        "streams[0].engine",
        f"{P}.epsilon",
        f"{P}.epsilno",
        f"{T}.step",
        f"{D}.y",
        "streams[0].audit",
    }  # options are read by the engine that is named, so not here
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("[kafka]", '[kafka]\nsasl_password = "hunter2"'),
        GOOD.replace("[kafka]", '[kafka]\nsasl_password_file = ["hunter2"]'),
        GOOD.replace("[kafka]", '[kafka]\nsasl_password_file = "hunter2"'),
        GOOD.replace("localhost:9092", "user:hunter2@localhost:9092"),
        GOOD.replace("epsilon = 1.0", 'epsilon = 1.0\nuser_key = "hunter2"'),
        GOOD.replace("epsilon = 1.0", 'epsilon = "hunter2"'),
        GOOD.replace("[kafka]", "[kafka]\nsasl_password = hunter2"),
        GOOD.replace("[kafka]", '[kafka]\nsasl_password = "hunter2'),
        GOOD.replace("[[streams]]", '[kafka.registry]\nurl = "https://me:hunter2@registry"\n[[streams]]', 1),
        GOOD.replace("[[streams]]", '[kafka.registry]\nurl = "https://me:1/hunter2@registry"\n[[streams]]', 1),
    ],
)
def test_no_value_that_may_be_secret_is_repeated(text: str) -> None:
    error = refused(text)
    assert "hunter2" not in f"{error} {error!r} {error.__cause__!r} {[*map(repr, error.problems)]}"
    assert error.__suppress_context__ or error.__context__ is None


def test_a_password_in_the_file_is_answered_with_the_key_for_its_file() -> None:
    error = refused(GOOD.replace("[kafka]", '[kafka]\nsasl_password = "hunter2"'))
    assert error.problems[0].fix == "did you mean sasl_password_file?"


def test_objects_built_by_hand_are_checked_too() -> None:
    stream = parse_config(GOOD).streams[0]
    document = stream.model_dump()
    document["privacy"]["user"] = None
    with pytest.raises(ConfigError, match="can bound only users"):
        Stream.model_validate(document)
    with pytest.raises(ConfigError, match="has no such mode"):
        Stream.model_validate(stream.model_dump() | {"mode": "fast"})


@pytest.mark.parametrize("document", [{}, {"streams": None}, {"streams": [None]}, {"streams": {"a": 1}}, {"kafka": []}])
def test_mappings_of_any_shape_are_refused_in_words(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        config_from_mapping(document)
