"""The promise, over arbitrary interleavings of two engines, two publishers and their crashes (see `world.py`).

Also with a step that cannot be computed, in the midst of many that are closed: those before it are answered, and
whoever goes on after a restart uses the seeds that are committed.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents.protocol.release.candidates import ENOUGH_BYTES, MOST_STEPS
from engines.core.noise import NoiseSource
from schemas.errors import ForkError, GapError
from schemas.releases import Seed, unframe_records
from tests.examples import examples
from tests.protocol.world import (
    PARTITIONS,
    STREAM,
    EngineProcess,
    FencedError,
    PublisherProcess,
    UnansweredError,
    World,
    golden,
)

pytestmark = pytest.mark.seconds(0.5)

NAMES = st.sampled_from(["first", "second"])
TO_THE_END = 4  # effects to the end of a transaction, where one is due
NETWORKS = st.sampled_from(["held", "twice"])
BULKS = (1, 1_000, ENOUGH_BYTES)  # of candidates in one transaction: one step, two, or all that are closed


class Promise(RuleBasedStateMachine):
    """Rules are what can happen; invariants are what must hold whatever happens."""

    planted = ""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.planted)
        self.engines: dict[str, EngineProcess] = {"first": EngineProcess(self.world)}
        self.publishers: dict[str, PublisherProcess] = {"first": PublisherProcess(self.world)}

    @initialize(enough_bytes=st.sampled_from(BULKS))
    def bulks(self, enough_bytes: int) -> None:
        self.world.enough_bytes = enough_bytes
        self.engines["first"] = EngineProcess(self.world)

    @rule(events=st.integers(0, 3), ticks=st.integers(1, 3))
    def everywhere(self, events: int, ticks: int) -> None:
        """Time passes on all partitions: steps become complete."""
        for partition in range(PARTITIONS):
            self.world.ingest(partition, {0: events} if events else {}, ticks)

    @rule(
        partition=st.integers(0, 1),
        events=st.dictionaries(st.integers(0, 2), st.integers(1, 3), max_size=2),
        ticks=st.integers(0, 2),
    )
    def ingest(self, partition: int, events: dict[int, int], ticks: int) -> None:
        self.world.ingest(partition, events, ticks)

    @rule(name=NAMES)
    def assign_engine(self, name: str) -> None:
        """A worker becomes the engine. The former one is not told: it goes on as a zombie."""
        self.engines[name] = EngineProcess(self.world)

    @rule(name=NAMES, effects=st.integers(1, 12))
    def engine_works(self, name: str, effects: int) -> None:
        self.work(self.engines, name, effects)

    @rule(name=NAMES)
    def engine_dies_after_effect(self, name: str) -> None:
        self.die(self.engines, name)

    @rule(name=NAMES)
    def engine_dies(self, name: str) -> None:
        self.engines.pop(name, None)

    @rule(name=NAMES)
    def assign_publisher(self, name: str) -> None:
        self.publishers[name] = PublisherProcess(self.world)

    @rule(name=NAMES, effects=st.integers(1, 9))
    def publisher_works(self, name: str, effects: int) -> None:
        self.work(self.publishers, name, effects)

    @rule(name=NAMES)
    def publisher_dies_after_effect(self, name: str) -> None:
        self.die(self.publishers, name)

    @rule(name=NAMES)
    def publisher_dies_half_way(self, name: str) -> None:
        process = self.publishers.pop(name, None)
        if process:
            process.die_half_way()

    @rule(name=NAMES, back=st.integers(0, 200))
    def publisher_is_sent_back(self, name: str, back: int) -> None:
        process = self.publishers.get(name)
        if process:
            process.position = max(0, process.position - back)

    @rule(name=NAMES, network=NETWORKS)
    def engine_is_not_answered(self, name: str, network: str) -> None:
        """The end of its next transaction is held on the way, or comes and comes again."""
        self.unanswered(self.engines, name, network)

    @rule(name=NAMES, network=NETWORKS)
    def publisher_is_not_answered(self, name: str, network: str) -> None:
        self.unanswered(self.publishers, name, network)

    @rule(engine=st.booleans())
    def a_late_end_arrives(self, engine: bool) -> None:
        (self.world.releases if engine else self.world.public).deliver()

    @rule()
    def trim(self) -> None:
        self.world.trim()

    @precondition(lambda self: not self.planted)
    @rule()
    def table_is_lost(self) -> None:
        self.world.table, self.world.stored = None, -1

    @precondition(lambda self: not self.planted)
    @rule()
    def table_is_torn(self) -> None:
        """It says how far it has the changelog, and does not have it."""
        self.world.table = None

    @rule(back=st.integers(1, 4))
    def table_is_an_older_copy(self, back: int) -> None:
        if len(states := list(self.world.changelog())) > back:
            offset, state = states[-1 - back]
            self.world.store(state, offset)

    def work(self, processes: dict, name: str, effects: int) -> None:
        for _ in range(effects):
            process = processes.get(name)
            if process is None:
                return
            try:
                process.act()
            except FencedError:
                processes.pop(name)

    def unanswered(self, processes: dict, name: str, network: str) -> None:
        """A producer that was not answered is of no more use: its process ends, and a new one reads what came of it."""
        process = processes.get(name)
        if process is None:
            return
        log = self.world.releases if processes is self.engines else self.world.public
        before = len(log.late)
        for _ in range(TO_THE_END):
            try:
                process.act(network=network)
            except (FencedError, UnansweredError):
                processes.pop(name)
                return
            if len(log.late) > before:
                return

    def die(self, processes: dict, name: str) -> None:
        process = processes.pop(name, None)
        if process is not None:
            with contextlib.suppress(FencedError):
                process.act(crash=True)

    @invariant()
    def one_seed_per_step(self) -> None:
        seeds: dict[int, bytes] = {}
        for _, record in self.world.log_records(deleted=True):
            if isinstance(record, Seed):
                assert seeds.setdefault(record.step, record.seed) == record.seed

    @invariant()
    def one_answer_per_step(self) -> None:
        answers = self.world.answers()
        assert all(len(copies) == 1 for copies in answers.values())
        assert all(len(values) == 1 for values in self.world.seen.values())
        assert sorted(answers) == list(range(len(answers))), "a step was skipped or merged"

    @invariant()
    def no_step_is_public_in_part(self) -> None:
        for copies in self.world.publications().values():
            assert all(copy[-1].channel == "ledger" for copy in copies), "a step without its ledger record"

    def teardown(self) -> None:
        """Whatever happened, new engines finish the work, and what is public is what one calm process would have
        said.
        """
        engine, publisher = EngineProcess(self.world), PublisherProcess(self.world)
        while self.world.releases.late or self.world.public.late:  # after the successors' first word
            self.world.releases.deliver()
            self.world.public.deliver()
        for _ in range(2000):
            before = (engine.machine.step, engine.machine.position, publisher.position, publisher.publisher.last_step)
            for _ in range(20):
                engine.act()
                publisher.act()
            if engine.effects is None and not publisher.due:
                after = (
                    engine.machine.step,
                    engine.machine.position,
                    publisher.position,
                    publisher.publisher.last_step,
                )
                if before == after:
                    break
        self.one_seed_per_step()
        self.one_answer_per_step()
        self.no_step_is_public_in_part()
        answers = self.world.answers()
        assert len(answers) == self.world.closed_steps, "a closed step was lost"
        expected = golden(self.world)
        running = 0
        for step, (copy,) in sorted(answers.items()):
            assert copy == expected[step], "bytes differ from those of a calm process"
            records = unframe_records(copy)
            measured = orjson.loads(records[1].value or b"")
            seed = next(
                r.seed for _, r in self.world.log_records(deleted=True) if isinstance(r, Seed) and r.step == step
            )
            shift = int(NoiseSource(seed, STREAM, step).child("toy").words(1)[0] % 1000)
            running += self.world.truth[step]
            assert measured["count"] - shift == self.world.truth[step], "an event was lost, repeated or moved"
            assert measured["running"] - shift == running


FAST = settings(
    max_examples=examples(5),
    stateful_step_count=45,
    suppress_health_check=list(HealthCheck),
)


def test_promise_holds_over_all_interleavings() -> None:
    run_state_machine_as_test(Promise, settings=FAST)


def live(machine: Promise, seed: int, actions: int, enough_bytes: int | None = None) -> None:
    """One life by a seeded walk: longer than Hypothesis makes them, and the same whatever else is loaded."""
    chance = random.Random(seed)
    machine.bulks(BULKS[seed % len(BULKS)] if enough_bytes is None else enough_bytes)

    def name() -> str:
        return chance.choice(["first", "second"])

    def bad_network(engine: bool) -> None:
        """Amid much work an end is under way while whoever sent it would go on, and arrives."""
        who, network = name(), chance.choice(["held", "twice"])
        machine.everywhere(1, 2)
        machine.engine_works(who, 12)
        (machine.engine_is_not_answered if engine else machine.publisher_is_not_answered)(who, network)
        (machine.engine_works if engine else machine.publisher_works)(who, 1 + chance.randrange(4))
        machine.a_late_end_arrives(engine)

    moves = [
        lambda: machine.everywhere(chance.randrange(4), chance.choice([1, 1, 2])),
        lambda: machine.ingest(
            chance.randrange(2), {chance.randrange(3): 1 + chance.randrange(3)}, chance.randrange(2)
        ),
        lambda: machine.engine_works(name(), 1 + chance.randrange(9)),
        lambda: machine.engine_works(name(), 1 + chance.randrange(3)),
        lambda: machine.publisher_works(name(), 1 + chance.randrange(9)),
        lambda: machine.assign_engine(name()),
        lambda: machine.assign_publisher(name()),
        lambda: chance.choice([machine.engine_dies, machine.engine_dies_after_effect])(name()),
        lambda: chance.choice([machine.publisher_dies_after_effect, machine.publisher_dies_half_way])(name()),
        lambda: machine.publisher_is_sent_back(name(), chance.randrange(200)),
        machine.trim,
        lambda: None if machine.planted else chance.choice([machine.table_is_lost, machine.table_is_torn])(),
        lambda: machine.table_is_an_older_copy(1 + chance.randrange(4)),
        lambda: machine.engine_is_not_answered(name(), chance.choice(["held", "twice"])),
        lambda: machine.publisher_is_not_answered(name(), chance.choice(["held", "twice"])),
        lambda: machine.a_late_end_arrives(chance.random() < 0.5),
        lambda: bad_network(chance.random() < 0.5),
    ]
    weights = [3, 2, 4, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    for _ in range(actions):
        chance.choices(moves, weights)[0]()
        machine.one_seed_per_step()
        machine.one_answer_per_step()
        machine.no_step_is_public_in_part()
    machine.teardown()


@pytest.mark.parametrize("seed", range(30))
def test_promise_holds_over_long_lives(seed: int) -> None:
    live(Promise(), seed, actions=120)


FAULTS = [
    *[(fault, None) for fault in ("log not read", "no fencing", "ledger not read", "retry with the same epoch")],
    *[("seed not reused", enough_bytes) for enough_bytes in BULKS],
    # The seeds of many steps were committed together, their candidates are committed in parts.
    ("seed of a bulk not reused", BULKS[0]),
    ("older state used", None),
    ("aborted state used", None),
    ("state stored before its commit", None),
    ("state outside of the transaction", None),
]


@pytest.mark.parametrize(("fault", "enough_bytes"), FAULTS)
def test_promise_test_catches_a_planted_fault(fault: str, enough_bytes: int | None) -> None:
    """Power: each part of the protocol that is left out is noticed, by an invariant or by the alarm of another part."""
    machine = type("Faulty", (Promise,), {"planted": fault})

    def lives() -> None:
        for seed in range(100):
            live(machine(), seed, actions=60, enough_bytes=enough_bytes)

    with pytest.raises((AssertionError, ForkError, GapError)):
        lives()


STEPS = 6
FAILS = 3


def work(process: EngineProcess | PublisherProcess) -> None:
    for _ in range(20 * STEPS):
        process.act()


def seeds(world: World) -> list[int]:
    return [record.step for _, record in world.log_records() if isinstance(record, Seed)]


def answered(world: World) -> list[int]:
    return sorted({record.step for _, record in world.log_records() if not isinstance(record, Seed)})


def test_more_closed_steps_than_one_transaction_takes() -> None:
    world, steps = World(enough_bytes=1 << 20), 2 * MOST_STEPS + 1
    for partition in range(PARTITIONS):
        world.ingest(partition, dict.fromkeys(range(steps), 1), steps)
    process, publisher = EngineProcess(world), PublisherProcess(world)
    drawn = []
    while len(answered(world)) < steps:
        process.act()
        drawn.append(len(seeds(world)))
    assert sorted(set(drawn) - {0}) == [MOST_STEPS, 2 * MOST_STEPS, steps]
    for _ in range(3 * steps):
        publisher.act()
    assert world.answers() == {step: [copy] for step, copy in golden(world).items()}


@pytest.mark.parametrize("enough_bytes", BULKS)
@pytest.mark.parametrize("fails", [0, FAILS, STEPS - 1])
def test_the_steps_before_it_are_answered_and_its_seed_is_used_later(enough_bytes: int, fails: int) -> None:
    world = World(enough_bytes=enough_bytes)
    for partition in range(PARTITIONS):
        world.ingest(partition, dict.fromkeys(range(STEPS), 1), STEPS)
    process = EngineProcess(world)
    engine = process.machine.stepper.engine
    step = engine.step

    def failing(batch: Any, noise: Any) -> Any:
        if batch.step == fails:
            raise ZeroDivisionError
        return step(batch, noise)

    engine.step = failing  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        work(process)
    assert process.machine.step == fails
    assert answered(world) == list(range(fails))
    assert (-1 if world.table is None else world.table.step) == fails - 1
    assert seeds(world) == list(range(STEPS))
    publisher = PublisherProcess(world)
    work(publisher)
    assert list(world.answers()) == list(range(fails))
    work(EngineProcess(world))
    work(publisher)
    assert seeds(world) == answered(world) == list(range(STEPS)), "with the seeds that were committed"
    assert world.answers() == {step: [copy] for step, copy in golden(world).items()}
