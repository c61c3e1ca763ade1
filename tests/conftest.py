"""Fixtures that every test may use. The real broker is started once, by the first test that asks for it."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# Now, and not at the very end as its plugin does where no test needs it: pytest parses what it imports, and when a
# fenced producer's error is collected meanwhile, asyncio logs its traceback, for whose carets CPython 3.11 parses too:
# "SystemError: AST constructor recursion depth mismatch".
import hypothesis
import pytest

from agents.local.broker.embedded import Broker, broker_from_env

# The same everywhere, a developer's machine and CI alike: no test is timed, and what failed once fails again. That
# inputs are made too slowly is a time as well.
hypothesis.settings.register_profile(
    "privstream",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("privstream")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reversed", action="store_true", help="run the last test first: no test needs an earlier one")


def about(item: pytest.Item) -> float:
    """Seconds that a test takes, said or guessed. Nothing but the order depends on it."""
    said = item.get_closest_marker("seconds")
    if said is not None:
        return float(said.args[0])
    return 10.0 if item.get_closest_marker("slow") else 2.0 if item.get_closest_marker("kafka") else 0.1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n logical`: more than there are cores, since tests with a broker wait half of their time."""
    return min((os.cpu_count() or 1) + 2, 6)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever uses the broker is marked `kafka`, so that `-m "not kafka"` is never wrong. The files that take longest
    come first, so that no process is left alone with one when the others are done.

    What is marked `nightly` runs where `-m` names that mark, as `make nightly` does.
    """
    if "nightly" not in config.getoption("markexpr"):
        at_night = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=at_night)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    seconds: dict[Path, float] = defaultdict(float)
    for item in items:
        if {"broker", "bootstrap"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
        seconds[item.path] += about(item)
    items.sort(key=lambda item: -seconds[item.path])
    if config.getoption("reversed"):
        items.reverse()


def pytest_collection_finish() -> None:
    """What the whole suite has imported is not looked through again whenever something collects garbage: Faust does, at
    each stop of a worker, and among so much it took longer than the rest of such a test.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workers without a `data_dir` keep their state tables below the user's: here below a folder that goes away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker of this test session. Raises where it cannot be started: a promise that was not tried is not kept.

    Shared by all: never kill or pause this one, and give topics and groups names of your own.
    """
    with broker_from_env() as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap
