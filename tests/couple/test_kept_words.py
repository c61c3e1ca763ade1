"""A coupled run remembers enough of its noise to find that some is used twice, and not all of it."""

from __future__ import annotations

import numpy as np
import pytest

from engines.checks.coupling import CouplingBroken, OutputAdversary, Recorder
from engines.checks.coupling.witnesses import FIRST_WORDS
from engines.core.noise.witness import WitnessedSource

LONG = 4 * FIRST_WORDS


def test_long_calls_are_not_kept_whole_and_are_told_apart() -> None:
    recorder = Recorder(OutputAdversary())
    source = WitnessedSource(recorder, bytes(32), "stream", 0)
    for _ in range(3):
        source.words(LONG)
    # An array may be a part of a larger one, which stays for as long as it does.
    kept = [each if each.base is None else each.base for each in recorder._words]
    assert sum(np.asarray(each).nbytes for each in kept) <= 3 * 8 * FIRST_WORDS
    recorder.check_words()


@pytest.mark.parametrize("shorter", [LONG, 1])
def test_words_of_a_long_call_that_come_again_are_found(shorter: int) -> None:
    recorder = Recorder(OutputAdversary())
    for count in (LONG, shorter):
        WitnessedSource(recorder, bytes(32), "stream", 0).words(count)
    with pytest.raises(CouplingBroken, match="twice"):
        recorder.check_words()
