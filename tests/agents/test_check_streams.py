"""What only building a stream's engine can tell is refused by `validate` and before a worker starts."""

from __future__ import annotations

import pytest

from agents.local.offline.domains import check_streams
from schemas.config import parse_config
from schemas.errors import ConfigError

TEXT = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "trips"
engine = "trajectory"
source = "raw.trips"
privacy = { epsilon = EPSILON, unit = "user", user = "u", max_contributions = 2 }
time = { field = "t", format = "s", start = "1970-01-01T00:00:00", step = "1h", clock = "replay" }
domain = { kind = "trips", trip = "n", x = "x", y = "y", bounds = [0.0, 0.0, 1.0, 1.0] }
options = { idle = "2h", longest = "3h", side = 8 }
"""


def test_noise_wider_than_integers_is_refused_with_the_key() -> None:
    check_streams(parse_config(TEXT.replace("EPSILON", "1.0")))
    with pytest.raises(ConfigError) as refused:
        check_streams(parse_config(TEXT.replace("EPSILON", "0.00002")))
    (problem,) = refused.value.problems
    assert problem.key == "streams[0].privacy.epsilon"
    assert "raise epsilon" in problem.fix
