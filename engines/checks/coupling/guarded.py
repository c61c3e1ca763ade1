"""A run of an engine on sealed events: whatever it reads of a private value without a mechanism raises.

The answer does not depend on the data: a threshold on a pending count is found on counts that are far from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engines.checks.contract_checks import contents
from engines.checks.coupling.sealed import sealed
from engines.core.contract import Batch, Engine, Release
from engines.core.noise.private import PrivateValueRead, is_private
from engines.core.noise.source import NoiseSource


def guarded_run(
    make_engine: Callable[[], Engine], batches: Sequence[Batch], source: Callable[[int], NoiseSource]
) -> list[Release]:
    """Return the releases of an engine whose events are sealed.

    Args:
        source: noise of a step, by its number.
    Raises: PrivateValueRead where a private value decides something or leaves.
    """
    engine, releases = make_engine(), list[Release]()
    for batch in batches:
        releases.append(engine.step(sealed(batch), source(batch.step)))
        if is_private(contents(releases[-1])):
            raise PrivateValueRead(f"step {batch.step}: a private value is released as it is")
    return releases


def check_guarded(
    make_engine: Callable[[], Engine], batches: Sequence[Batch], source: Callable[[int], NoiseSource]
) -> None:
    """Check that sealed events give the releases of plain ones, and that nothing private is read on the way.

    Raises: PrivateValueRead, naming the operation.
    """
    engine = make_engine()
    plain = [contents(engine.step(batch, source(batch.step))) for batch in batches]
    for release, expected in zip(guarded_run(make_engine, batches, source), plain, strict=True):
        if contents(release) != expected:
            raise PrivateValueRead("sealed events give another release")
