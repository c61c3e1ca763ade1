"""Fixtures that every test may use. The real broker is started once, by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

# Now, and not at the very end as its plugin does where no test needs it: pytest parses what it imports, and when a
# fenced producer's error is collected meanwhile, asyncio logs its traceback, for whose carets CPython 3.11 parses too:
# "SystemError: AST constructor recursion depth mismatch".
import hypothesis
import pytest

from agents.broker.embedded import Broker, broker_from_env

# The same everywhere, a developer's machine and CI alike: no test is timed, and what failed once fails again.
hypothesis.settings.register_profile("privstream", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("privstream")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the broker is marked `kafka`, so that `-m "not kafka"` is never wrong."""
    for item in items:
        if {"broker", "bootstrap"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


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
