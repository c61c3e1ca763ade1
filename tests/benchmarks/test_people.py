"""What `make bench-people` compares is what engines call their errors."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agents.show.view import metrics_of
from benchmarks.people.streams import SETS, People


@pytest.mark.parametrize("people", SETS, ids=lambda people: people.name)
def test_errors_are_named_as_the_engine_names_them(people: People) -> None:
    named = {metric.name for metric in metrics_of(people.config(Decimal(1)).streams[0]) if metric.error}
    assert set(people.errors) <= named
    assert people.compared(dict.fromkeys(named, 1.0))
