"""What `make chaos` looks for in a worker's log is what a worker says whose cluster was put back."""

from __future__ import annotations

import pytest

from agents.kafka.lifecycle.stops import Stops
from agents.protocol.release.witness import Mark, Terms, judge
from schemas.errors import WitnessError
from tests.crash.put_back import WORDS


@pytest.mark.parametrize(
    ("last", "ledger", "logged"), [(2, None, None), (2, None, "another"), (4, "another", None), (-1, None, None)]
)
def test_a_stop_by_the_witness_is_seen(
    last: int, ledger: str | None, logged: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    terms = Terms("/witness", configured=True)
    with pytest.raises(WitnessError) as refused:
        judge("taxi", Mark("taxi", 4, "chain"), terms, last=last, last_chain="x", ledger=ledger, logged=logged)
    Stops.of(["taxi", "bus"]).add("taxi", "publish", 1, refused.value, step=4)
    assert WORDS.findall(caplog.text) == ["taxi"]
    assert WORDS.findall(str(refused.value)) == ["taxi"], "and as the last line of a worker that ends"
