"""docs/guarantee.md: the tests that it names exist, and the figures that were recomputed for it are recomputed here."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from engines.core.accounting import gaussian
from engines.core.counters.tree import TreeCounter
from engines.spatial.split import SplitRule
from tests.couple.plants.all import EVERY

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantee.md").read_text(encoding="utf-8")
TESTS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
NAMED = "\n".join(TESTS.values())


def test_every_file_that_the_page_names_is_there() -> None:
    paths = set(re.findall(r"`((?:agents|engines|schemas|tests)/[a-z_/]+\.py)", PAGE))
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (ROOT / path).is_file()] == []
    assert [name for name in sorted(set(re.findall(r"test_[a-z_]+\.py", PAGE))) if name not in TESTS] == []
    assert [
        name for name in re.findall(r"`(notes/[a-z0-9-]+\.md)`", PAGE) if not (ROOT / "docs" / name).is_file()
    ] == []


def test_every_test_and_every_plant_that_the_page_names_is_there() -> None:
    tests = set(re.findall(r"`(?:[a-z_/]+\.py::)?(test_[a-z_]+)`", PAGE))
    assert len(tests) >= 5
    assert [name for name in sorted(tests) if f"def {name}(" not in NAMED] == []
    plants = {
        name.replace("\\|", "|")
        for line in re.findall(r'[Pp]lants? ((?:"[^"]+"(?:,\s)?)+)', PAGE)
        for name in line.split('"')[1::2]
    }
    assert len(plants) > 8
    assert plants <= {plant.name for plant in EVERY}


@pytest.mark.parametrize(
    ("epsilon", "full", "shrunk"),
    [("2", 0.78, 0.96), ("1", 0.84, 0.99), ("1/10", 0.98, 1.17), ("1/20", 0.99, 1.19), ("1/100", 1.00, 1.20)],
)
def test_worst_losses_of_the_split_rule_and_of_a_smaller_scale(epsilon: str, full: float, shrunk: float) -> None:
    """Over all paths of equal integer scores, of 20 levels; relative to epsilon."""
    rule = SplitRule(epsilon=Fraction(epsilon))
    for factor, stated in ((1.0, full), (0.83, shrunk)):
        scale = float(rule.scale) * factor
        decay = scale * math.log(2)
        margins = np.arange(20) * decay - np.arange(int(22 * decay) + 2)[:, None]
        without, with_event = (np.minimum(margins - one, decay) / scale for one in (0, 1))
        loss = (log_exceeds(with_event) - log_exceeds(without)).sum(axis=1).max() / float(rule.epsilon)
        assert round(float(loss), 2) == stated


def log_exceeds(x: np.ndarray) -> np.ndarray:
    """Of a Laplace draw of scale 1."""
    tail = -np.abs(x) - math.log(2)
    return np.where(x >= 0, tail, np.log1p(-np.exp(tail)))


def test_the_small_counter_examples() -> None:
    assert 1 / (1 + math.exp(10 / 2)) == pytest.approx(0.0067, abs=5e-5)  # the sign of definition 2.2.7
    assert TreeCounter(epsilon=Fraction(1), horizon=8).l1_sensitivity / math.log2(8) == pytest.approx(1.33, abs=0.005)
    certain = [c for c in range(200, 240) if 1 - 0.5 * math.exp(-c / 6) == 1.0]
    assert certain[0] == 221
    assert [(Fraction(3, 10) * z) % 1 for z in (7, 8)] == [Fraction(1, 10), Fraction(4, 10)]
    assert np.mean([math.ceil(x / 1000) - x / 1000 for x in range(1, 1000)]) == pytest.approx(0.5)
    r = 0.01
    assert r * math.log(r) - r + math.log(2 * math.pi * r) / 2 == pytest.approx(-1.44, abs=0.005)
    assert math.lgamma(r + 1) == pytest.approx(-0.006, abs=5e-4)


def test_delta_does_not_divide() -> None:
    sigma = gaussian.sigma_for(epsilon=0.1, delta=1e-6, l2_sensitivity=1)
    assert gaussian.delta(epsilon=1, mu=10 / sigma) == pytest.approx(1.56e-5, rel=0.005)
