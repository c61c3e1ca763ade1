"""An option that has no effect in a mode is refused in it: by declaration, for every engine."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engines.checks.contract_case import contract_case
from engines.core.registry import build_domain, build_engine
from schemas.config import ENGINES
from schemas.config.engines.options import OptionsSection
from schemas.errors import ConfigError

DESCRIBED = re.compile(r"Modes? (`[\w-]+`(?: and `[\w-]+`)*)")
OPTIONS = [
    pytest.param(engine, name, id=f"{engine}-{name}")
    for engine, spec in ENGINES.items()
    for name in spec.options.model_fields
]


def options_of(engine: str) -> type[OptionsSection]:
    return ENGINES[engine].options


@pytest.mark.parametrize(("engine", "name"), OPTIONS)
def test_a_key_is_declared_to_be_of_the_modes_that_its_documentation_names(engine: str, name: str) -> None:
    described = DESCRIBED.match(" ".join((options_of(engine).model_fields[name].description or "").split()))
    modes = () if described is None else tuple(re.findall(r"[\w-]+(?=`)", described[1]))
    assert options_of(engine).only_in().get(name, ()) == modes
    assert set(modes) < set(ENGINES[engine].facts.modes) or not modes


OTHERS = {
    ("spatial", "split"): 0.25, ("spatial", "threshold"): 3.5, ("spatial", "counter"): "block",
    ("spatial", "horizon"): 50, ("spatial", "max_leaves"): 512,
    ("tabular", "rounds"): 2, ("tabular", "counter"): "block",
    ("tabular", "horizon"): 50, ("tabular", "fit"): "joint", ("tabular", "model_cells"): 512,
    ("series", "decay"): 0.5, ("series", "seasonal"): False, ("series", "weight"): 0.25,
    ("series", "correlation"): "positive", ("markov", "lag"): 2, ("markov", "prior"): "uniform",
    ("trajectory", "side"): 8, ("trajectory", "spread"): "exponential", ("keys", "least_count"): 9,
    ("keys", "max_keys"): 512, ("keys", "sample"): "1/4",
}  # fmt: skip
"""A value that is none of the default."""


def test_every_key_of_one_mode_has_another_value_here() -> None:
    assert {(engine, name) for engine in ENGINES for name in options_of(engine).only_in()} == set(OTHERS)


@pytest.mark.parametrize(("engine", "name"), [pytest.param(*each, id="-".join(each)) for each in OTHERS])
def test_a_key_of_other_modes_is_refused_by_its_name(engine: str, name: str) -> None:
    for mode in ENGINES[engine].facts.modes:
        options = contract_case(engine).stream(mode).options
        modes = options.only_in()[name]
        assert list(options.mode_problems(mode)) == []
        problems = list(options.model_copy(update={name: OTHERS[engine, name]}).mode_problems(mode))
        if mode in modes:
            assert problems == []
        else:
            [problem] = problems
            assert (problem.key, problem.reason) == (f"options.{name}", f'has no effect in mode "{mode}"')
            assert f'mode = "{modes[0]}"' in problem.fix


def test_a_stream_is_refused_with_it() -> None:
    """`split` and `threshold` were taken in mode `default`, and explain told them as facts."""
    with pytest.raises(ConfigError) as caught:
        contract_case("spatial").stream("default").revised(options={"threshold": 3.5, "split": 0.25})
    assert [each.key for each in caught.value.problems] == ["options.split", "options.threshold"]


def test_a_stream_in_another_mode_leaves_out_what_that_does_not_have() -> None:
    """`simulate --mode paper` compares a stream with itself, whatever its file says of its own mode."""
    stream = contract_case("spatial").stream("default", {"options": {"max_leaves": 512, "depth": 9}})
    other = stream.with_overrides(mode="paper")
    assert (other.mode, other.options.explicit.keys() & {"max_leaves", "depth"}) == ("paper", {"depth"})
    assert stream.with_overrides(mode="default") == stream


@pytest.mark.parametrize(
    ("engine", "mode"), [(engine, mode) for engine in ENGINES for mode in ENGINES[engine].facts.modes]
)
def test_a_key_that_is_refused_in_no_mode_is_read_in_each(
    engine: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new key that one mode has no use for is declared, or noticed here."""
    stream, read = contract_case(engine).stream(mode), set[str]()

    def noted(self: OptionsSection, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(options_of(engine), "__getattribute__", noted, raising=False)
    build_domain(stream)
    build_engine(stream)
    assert set(options_of(engine).model_fields) - options_of(engine).without_effect(mode) <= read
