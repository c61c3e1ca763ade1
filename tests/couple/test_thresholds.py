"""Every constant at which an engine, the protocol or a format takes another way has a case on both sides, or says here
why not.

`python -m tests.couple.thresholds` finds on which sides the coupled streams and the tests are; it takes minutes,
so that what it found stands in `thresholds.json`, by one of `KINDS`. A new constant is not there: run the command, and
give an engine's case, or the tests of the others, the side that is missing.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.couple import thresholds

KINDS = {
    "both": "coupled streams take both sides",
    "tests": "the tests of the protocol and of the configuration take both sides",
    "public": "it reads the configuration, or a schedule that follows from it",
    "after": "it reads what was released; coupled runs would refuse a private value there as sealed",
    "domain": "it reads the place of one record, or the public map; the far side is for the tests of the domain",
    "called": "no stream of a test's size is on the far side: `test_far_sides` calls the function on both",
}


def test_every_constant_that_changes_a_path_is_listed() -> None:
    found = {name for module in thresholds.modules() for _, name in thresholds.thresholds(module)}
    listed = json.loads(Path(__file__).with_name("thresholds.json").read_text())
    assert found == set(listed), "run python -m tests.couple.thresholds"
    assert set(listed.values()) <= set(KINDS)


SOURCE = """
LIMIT = 100

def over(x):
    if x > 1000:
        raise ValueError
    return x > LIMIT

def cut(x):
    return min(x, LIMIT)
"""


@pytest.mark.parametrize(("numbers", "sides"), [([5], {False}), ([500], {True}), ([5, 500], {False, True})])
def test_sides_are_noted_and_results_are_those_without(
    numbers: list[int], sides: set[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[thresholds.Place, set[bool]] = {}
    monkeypatch.setattr(thresholds, "SEEN", seen)
    noting = thresholds.Noting("toy", tree := ast.parse(SOURCE)).visit(tree)
    toy: dict[str, Any] = {"__compared__": thresholds.compared, "__limited__": thresholds.limited}
    exec(compile(ast.fix_missing_locations(noting), "toy", "exec"), toy)
    for number in numbers:
        assert toy["over"](number) == (number > 100)
        assert toy["cut"](number) == min(number, 100)
    assert list(seen.values()) == [sides, {not each for each in sides}], "and none that decides on an error"
    array, place = np.array(numbers), ("toy", 0, 0)
    assert np.array_equal(thresholds.compared(place, array > 100), array > 100)
    assert seen.pop(place) == sides
    assert np.array_equal(thresholds.limited(place, np.minimum, array, 100), np.minimum(array, 100))
    assert seen.pop(place) == {not each for each in sides}
