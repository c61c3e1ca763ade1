"""The promise, over arbitrary interleavings of two owners, two publishers and their crashes (see `world.py`)."""

from __future__ import annotations

import contextlib
import random

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from engines.noise import NoiseSource
from schemas.errors import ForkError, GapError
from schemas.releases import Seed, decode_log_record, unframe_records
from tests.protocol.world import PARTITIONS, STREAM, FencedError, OwnerProcess, PublisherProcess, World, golden

NAMES = st.sampled_from(["first", "second"])


class Promise(RuleBasedStateMachine):
    """Rules are what can happen; invariants are what must hold whatever happens."""

    planted = ""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.planted)
        self.owners: dict[str, OwnerProcess] = {"first": OwnerProcess(self.world)}
        self.publishers: dict[str, PublisherProcess] = {"first": PublisherProcess(self.world)}

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
        """A worker becomes the owner. The former one is not told: it goes on as a zombie."""
        self.owners[name] = OwnerProcess(self.world)

    @rule(name=NAMES, effects=st.integers(1, 12))
    def engine_works(self, name: str, effects: int) -> None:
        self.work(self.owners, name, effects)

    @rule(name=NAMES)
    def engine_dies_after_effect(self, name: str) -> None:
        self.die(self.owners, name)

    @rule(name=NAMES)
    def engine_dies(self, name: str) -> None:
        self.owners.pop(name, None)

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

    @rule()
    def trim(self) -> None:
        self.world.trim()

    @precondition(lambda self: not self.planted)
    @rule()
    def table_is_lost(self) -> None:
        self.world.table, self.world.saved = None, -1

    def work(self, processes: dict, name: str, effects: int) -> None:
        for _ in range(effects):
            process = processes.get(name)
            if process is None:
                return
            try:
                process.act()
            except FencedError:
                processes.pop(name)

    def die(self, processes: dict, name: str) -> None:
        process = processes.pop(name, None)
        if process is not None:
            with contextlib.suppress(FencedError):
                process.act(crash=True)

    @invariant()
    def one_seed_per_step(self) -> None:
        seeds: dict[int, bytes] = {}
        for _, data in self.world.releases.records:
            record = decode_log_record(data)
            if isinstance(record, Seed):
                assert seeds.setdefault(record.step, record.seed) == record.seed

    @invariant()
    def one_answer_per_step(self) -> None:
        answers = self.world.answers()
        assert all(len(copies) == 1 for copies in answers.values())
        assert all(len(copies) == 1 for copies in self.world.seen.values())
        assert sorted(answers) == list(range(len(answers))), "a step was skipped or merged"

    def teardown(self) -> None:
        """Whatever happened, new owners finish the work, and what is public is what one calm process would have
        said.
        """
        owner, publisher = OwnerProcess(self.world), PublisherProcess(self.world)
        for _ in range(2000):
            before = (owner.owner.step, owner.owner.position, publisher.position, publisher.publisher.last_step)
            for _ in range(20):
                owner.act()
                publisher.act()
            if owner.effects is None and publisher.due is None:
                after = (owner.owner.step, owner.owner.position, publisher.position, publisher.publisher.last_step)
                if before == after:
                    break
        self.one_seed_per_step()
        self.one_answer_per_step()
        answers = self.world.answers()
        assert len(answers) == self.world.closed_steps, "a closed step was lost"
        expected = golden(self.world)
        running = 0
        for step, (copy,) in sorted(answers.items()):
            assert copy == expected[step], "bytes differ from those of a calm process"
            records = unframe_records(copy)
            measured = orjson.loads(records[1].value or b"")
            seed = next(
                r.seed
                for _, data in self.world.releases.records
                if isinstance(r := decode_log_record(data), Seed) and r.step == step
            )
            shift = int(NoiseSource(seed, STREAM, step).child("toy").words(1)[0] % 1000)
            running += self.world.truth[step]
            assert measured["count"] - shift == self.world.truth[step], "an event was lost, repeated or moved"
            assert measured["running"] - shift == running


FAST = settings(
    max_examples=250,
    stateful_step_count=45,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_promise_holds_over_all_interleavings() -> None:
    run_state_machine_as_test(Promise, settings=FAST)


def live(machine: Promise, seed: int, actions: int) -> None:
    """One life by a seeded walk: longer than Hypothesis makes them, and the same whatever else is loaded."""
    chance = random.Random(seed)

    def name() -> str:
        return chance.choice(["first", "second"])

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
        lambda: None if machine.planted else machine.table_is_lost(),
    ]
    weights = [3, 2, 4, 4, 4, 1, 1, 1, 1, 1, 1, 1]
    for _ in range(actions):
        chance.choices(moves, weights)[0]()
        machine.one_seed_per_step()
        machine.one_answer_per_step()
    machine.teardown()


@pytest.mark.parametrize("seed", range(30))
def test_promise_holds_over_long_lives(seed: int) -> None:
    live(Promise(), seed, actions=120)


@pytest.mark.parametrize("fault", ["seed not reused", "log not read", "no fencing", "ledger not read"])
def test_promise_test_catches_a_planted_fault(fault: str) -> None:
    """Power: each part of the protocol that is left out is noticed, by an invariant or by the alarm of another part."""
    machine = type("Faulty", (Promise,), {"planted": fault})

    def lives() -> None:
        for seed in range(100):
            live(machine(), seed, actions=60)

    with pytest.raises((AssertionError, ForkError, GapError)):
        lives()
