"""Fixtures that every test may use. The real broker is started once in a run, when the first test asks for it."""

from __future__ import annotations

import asyncio
import gc
import gzip
import html
import importlib
import inspect
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Now, and not at the very end as its plugin does where no test needs it: pytest parses what it imports, and when a
# fenced producer's error is collected meanwhile, asyncio logs its traceback, for whose carets CPython 3.11 parses too:
# "SystemError: AST constructor recursion depth mismatch".
import hypothesis
import pytest

from agents.local.broker.embedded import Broker
from agents.show import charts
from tests.containers import check_usable, suite_broker

# The same examples everywhere, on a developer's machine and in CI alike: no test is timed, and what failed once fails
# again. That inputs are made too slowly is a time as well. By night there are many more, others each time.
hypothesis.settings.register_profile(
    "privstream",
    max_examples=30,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "nightly", hypothesis.settings.get_profile("privstream"), max_examples=500, derandomize=False
)
hypothesis.settings.load_profile("privstream")


# What JAX compiles runs a few times: to optimise it takes longer than that.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

SAMPLE = Path(__file__).parents[1] / "examples" / "nyc_taxi" / "taxi_2016_01_sample_20k.csv.gz"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(50_000)  # by default Python looks for garbage so often that it takes a fifteenth of all time
    if not hasattr(config, "workerinput"):  # once for all processes of the run
        check_usable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reversed", action="store_true", help="run the last test first: no test needs an earlier one")


def about(item: pytest.Item) -> float:
    """Seconds that a test takes, said or guessed. Nothing but the order depends on it."""
    said = item.get_closest_marker("seconds")
    if said is not None:
        return float(said.args[0])
    return 10.0 if item.get_closest_marker("slow") else 2.0 if item.get_closest_marker("kafka") else 0.1


class SharedBroker(threading.Thread):
    """The broker of all processes of a run, in the one that hands out the tests.

    It is started when a process has asked, and stopped by this thread as well: its process ends with the thread.

    Args: folder: where processes ask, and are answered.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(name="broker", daemon=True)
        self._folder, self._ended = folder, threading.Event()

    def run(self) -> None:
        while not (self._folder / "asked").exists():
            if self._ended.wait(0.1):
                return
        try:
            with suite_broker() as running:
                self._answer(running.bootstrap)
                self._ended.wait()
        except Exception as error:
            self._answer(f"\n{error!r}")

    def end(self) -> None:
        self._ended.set()
        self.join()

    def _answer(self, text: str) -> None:
        (self._folder / "writing").write_text(text)
        (self._folder / "writing").rename(self._folder / "answer")

    @staticmethod
    def ask(folder: Path) -> Broker:
        """Raises: RuntimeError where it could not be started."""
        (folder / "asked").touch()
        while not (folder / "answer").exists():
            time.sleep(0.1)
        address, _, problem = (folder / "answer").read_text().partition("\n")
        if problem:
            raise RuntimeError(problem)
        return Broker(address)


SHARED = pytest.StashKey[tuple[SharedBroker, tempfile.TemporaryDirectory[str]]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the run where to ask for the broker."""
    if SHARED not in node.config.stash:
        folder = tempfile.TemporaryDirectory(prefix="privstream-suite-")
        node.config.stash[SHARED] = SharedBroker(Path(folder.name)), folder
        node.config.stash[SHARED][0].start()
    node.workerinput["broker"] = node.config.stash[SHARED][1].name


LIBRARIES = ("aiohttp.web", "pandas", "playwright.sync_api", "scipy.stats", "shapely")
"""Which take longest to import, of those that files of tests import at once."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let one process of a run go first: it compiles all tests, and the others read what it has compiled. The same with
    Hypothesis's tables of Unicode, which it makes in a CPU second and a half and keeps in a file. Meanwhile the others
    import what nobody has to compile, on cores that had nothing to do.
    """
    given = getattr(session.config, "workerinput", None)
    if given is not None and given["workerid"] == "gw0":
        hypothesis.strategies.text().validate()
    elif given is not None:
        for name in LIBRARIES:
            importlib.import_module(name)
        while not (Path(given["broker"]) / "collected").exists():
            time.sleep(0.1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    (Path(node.workerinput["broker"]) / "collected").touch()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Let the others go on without the one that they wait for."""
    (Path(node.workerinput["broker"]) / "collected").touch()


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        shared, folder = config.stash[SHARED]
        shared.end()
        folder.cleanup()


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
def few_trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 2,000 trips of the taxi sample: four days."""
    path = tmp_path_factory.mktemp("trips") / "taxi.csv"
    with gzip.open(SAMPLE, "rt") as source:
        path.write_text("".join(line for line, _ in zip(source, range(2_001), strict=False)))
    return path


@pytest.fixture
def drawn() -> None:
    """Have the pictures of reports drawn, for a test that looks at them. To draw them takes most of a small simulation,
    so everywhere else they are empty.
    """


@pytest.fixture(autouse=True)
def _pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(charts, "image", lambda _, kind, *, alt: f'<img alt="{html.escape(alt, quote=True)}">')


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker of this run. Raises where it cannot be started: a promise that was not tried is not kept.

    Shared by all, at the same time: never kill or pause this one, and give topics and groups names of your own.
    """
    with (
        SharedBroker.ask(Path(given["broker"]))
        if (given := getattr(request.config, "workerinput", None))
        else suite_broker() as running
    ):
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap
