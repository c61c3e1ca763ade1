"""What a built engine costs, worked out anew: kept in every combination of keys, and refused where a split is wrong.

No false alarms: seeds are fixed, and nothing is sampled but configurations, for any of which the promise holds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice
from typing import Any

import pytest

import engines.series.build
import engines.tabular.build
import engines.trajectory.build
from agents.local.offline.domains import check_streams
from agents.protocol.release.stepper import Stepper
from engines.checks import contract_checks as checks
from engines.checks.contract_case import contract_case
from engines.core import registry
from engines.core.accounting.promise import UnitEvents
from engines.core.contract import Batch
from engines.core.registry import build_domain
from engines.core.shares import LaplaceCells
from engines.markov.engine import Markov
from engines.series.channels import FixedChannel
from engines.spatial.held.engine import HeldConfig
from engines.spatial.held.measure import LeafCounter
from engines.spatial.split import SplitRule
from engines.trajectory.domain import Closing
from schemas.blocks import Folded
from schemas.config import Stream, config_from_mapping
from schemas.errors import BudgetError, ConfigError, EngineInputError
from tests.contracts.combinations import cases, deeper, paired
from tests.couple.plants import edited
from tests.kafka.support import stream_table

pytestmark = pytest.mark.seconds(1)


def refused(name: str, mode: str) -> str:
    """The first refusal among combinations of keys; empty if there is none. Raises: nothing else."""
    for stream in paired(contract_case(name), mode):
        try:
            registry.build_engine(stream)
        except EngineInputError:
            continue  # too large, or of no use: not a matter of what is promised
        except BudgetError as error:
            return str(error)
    return ""


@pytest.mark.parametrize(("name", "mode"), cases())
def test_what_is_configured_is_what_a_unit_pays(name: str, mode: str) -> None:
    """In each combination the sum holds, and in every twelfth noise is paid for where it is drawn, and only there.

    Of those whose keys below other keys are set, a third.
    """
    case = contract_case(name)
    built = 0
    for stream in chain(paired(case, mode), islice(deeper(case, mode), None, None, 3)):
        try:
            registry.build_engine(stream)
        except EngineInputError:
            continue
        built += 1
        if built % 12 == 0:
            nothing = Folded.empty(build_domain(stream).words)
            steps = [Batch(step, nothing, surplus=1) for step in range(2)]
            checks.check_pays_for_noise(partial(registry.build_engine, stream), steps)
    assert built > 3


PLANTS: dict[str, tuple[str, str, Callable[[], AbstractContextManager[Any]]]] = {
    "a surplus that the engine does not pay for, under a cap": (
        "spatial", "default",
        lambda: edited(Stream, "engine_epsilon", " if self.surplus",
            " if self.surplus and not self.privacy.max_per_step"),
    ),
    "a surplus of one event": (
        "tabular", "default",
        lambda: edited(registry, "build_engine", "reach=stream.privacy.surplus", "reach=1"),
    ),
    "a surplus that nobody counts where the bound renews": (
        "spatial", "default",
        lambda: edited(registry, "build_engine", "if stream.surplus:", "if stream.surplus and not stream.privacy.per:"),
    ),
    "noise for one event of a user whose bound renews": (
        "tabular", "default",
        lambda: edited(
            engines.tabular.build, "build", "stream.changes if", "stream.changes if not stream.privacy.per and"
        ),
    ),
    "an expiry that is measured and not charged": (
        "spatial", "paper", lambda: edited(Stream, "insert_charge", "return 2", "return 1"),
    ),
    "a life that is not thought of": (
        "trajectory", "default", lambda: edited(Closing, "together", "per_step * steps", "per_step"),
    ),
    "users of one event a step": (
        "series", "default",
        lambda: edited(engines.series.build, "presence", "min(privacy.max_per_step or most, most)", "1"),
    ),
    "a bound by the step alone": (
        "series", "default",
        lambda: edited(FixedChannel, "sigma_squared", "worst = self.schedule.worst(budget.presence)", "worst = weight"),
    ),
    "half the noise of a replaced record": (
        "markov", "default",
        lambda: edited(Markov, "guarantee", "scale_for(L1_SENSITIVITY,", "scale_for(1,"),
    ),
    "a scale that does not buy its epsilon": (
        "trajectory", "paper", lambda: edited(LaplaceCells, "scale", "self.cost", "self.cost * 2"),
    ),
    "bits at the slope of one threshold": (
        "spatial", "paper", lambda: edited(SplitRule, "scale", "path_cost(self.fanout)", "1"),
    ),
    "a precision that falls and is taken to stay": (
        "series", "default", lambda: edited(UnitEvents, "from_stream", ", stream.decay)", ")"),
    ),
    "nothing to charge": (
        "series", "paper", lambda: edited(FixedChannel, "arrays", ", **self._accountant.state()", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_a_wrong_split_is_refused(plant: str) -> None:
    name, mode, planted = PLANTS[plant]
    with planted():
        assert 'stream "s"' in refused(name, mode), plant


def test_a_refusal_stops_before_anything_starts() -> None:
    """`run` and `validate` say which stream it is, and why; a worker that builds the engine all the same stops it."""
    document = {"job": {"name": "j", "data_dir": "unused"}, "kafka": {"bootstrap": "localhost:1"}}
    config = config_from_mapping({**document, "streams": [stream_table("taxi")]})
    check_streams(config)
    whole = edited(HeldConfig, "counter", "self.epsilon - self.watch.epsilon", "self.epsilon")
    with whole, pytest.raises(ConfigError, match="taxi"):
        check_streams(config)
    with edited(LeafCounter, "scale", "self.epsilon", "self.epsilon * 2"):
        with pytest.raises(ConfigError, match=r'(?s)streams\[0\].privacy: stream "taxi": .*held event counts.*Nothing'):
            check_streams(config)
        with pytest.raises(BudgetError, match="by its scale"):
            Stepper.from_stream(config.streams[0], 1)
