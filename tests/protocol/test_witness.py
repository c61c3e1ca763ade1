"""The witness of a stream: what an opening publisher makes of it, every case, and that no history of crashes and of
clusters that are put back gives a step two answers for as long as the witness stands.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.release.witness import Mark, Terms, advance, judge
from schemas.errors import WitnessError

HERE, OTHER = "a" * 64, "b" * 64
PLACE = "/the/place"


def mark_at(step: int, *, since: int = -1) -> Mark:
    return Mark("s", step, HERE, since)


# Mark; last step of the ledger; digest of the mark's step in the ledger, on the log; what comes of it with a witness of
# the workers' own, and with one that is configured. `stands`: the mark stays. A number: the ledger is trusted to there.
CASES: list[tuple[Mark | None, int, str | None, str | None, str | int, str | int]] = [
    (None, -1, None, None, "new", "new"),
    (None, 4, None, None, 4, "has never seen this stream"),
    (mark_at(4), 4, HERE, None, "stands", "stands"),
    (mark_at(2), 4, HERE, None, 4, "ends at step 2"),
    (mark_at(4), 4, OTHER, None, "public ledger has another answer", "public ledger has another answer"),
    (mark_at(2), 4, OTHER, None, "public ledger has another answer", "public ledger has another answer"),
    (mark_at(6), 4, None, HERE, "stands", "stands"),
    (mark_at(6), 4, None, OTHER, "release log has another answer", "release log has another answer"),
    (mark_at(6), 4, None, None, "steps up to 4 only", "steps up to 4 only"),
    (mark_at(0), -1, None, HERE, "stands", "stands"),
    (mark_at(0), -1, None, OTHER, "release log has another answer", "release log has another answer"),
    (mark_at(0), -1, None, None, "steps up to -1 only", "steps up to -1 only"),
]


@pytest.mark.parametrize("configured", [False, True])
@pytest.mark.parametrize(("mark", "last", "ledger", "logged", "own", "shared"), CASES)
def test_every_case(
    mark: Mark | None,
    last: int,
    ledger: str | None,
    logged: str | None,
    own: str | int,
    shared: str | int,
    configured: bool,
) -> None:
    def judged(trusted: int | None = None) -> Mark | None:
        terms = Terms(PLACE, configured=configured, trusted=trusted)
        return judge("s", mark, terms, last=last, last_chain=HERE, ledger=ledger, logged=logged)

    expected = shared if configured else own
    if expected == "new":
        assert judged() is None
    elif expected == "stands":
        assert judged() == judged(last) == mark
    elif isinstance(expected, int):
        assert judged() == Mark("s", expected, HERE, since=expected)
    else:
        with pytest.raises(WitnessError, match=expected) as refused:
            judged()
        assert PLACE in str(refused.value)
        assert "What to do: " in str(refused.value)
        for trusted in (last - 1, last + 1):
            with pytest.raises(WitnessError):
                judged(trusted)
        if isinstance(own, int):  # nothing contradicts the ledger: a person may vouch for it
            assert judged(last) == Mark("s", last, HERE, since=last)
        else:
            with pytest.raises(WitnessError, match=expected):
                judged(last)


def test_a_mark_only_goes_forward_and_keeps_what_it_was_trusted_with() -> None:
    assert advance(None, stream="s", step=0, chain=HERE) == mark_at(0)
    assert advance(mark_at(3, since=2), stream="s", step=5, chain=OTHER) == Mark("s", 5, OTHER, since=2)
    for step in (2, 3):
        assert advance(mark_at(3), stream="s", step=step, chain=OTHER) is None


def test_what_is_written_is_what_is_read() -> None:
    mark = Mark("s", 7, HERE, since=3)
    assert Mark.decode(mark.encode(), stream="s", place=PLACE) == mark
    words = mark.encode()
    others = ((b'"version":1', b'"version":2'), (b'"step":7', b'"step":"7"'), (b'"stream":"s"', b'"stream":"t"'))
    for damaged in (b"", b"{}", b"[]", b"7", words[:-1], *(words.replace(*other) for other in others)):
        with pytest.raises(WitnessError, match=PLACE):
            Mark.decode(damaged, stream="s", place=PLACE)


# --- crashes, zombies, and clusters that are put back -----------------------------------------------------------------


class StoppedError(Exception):
    """The publisher's stream stops, or its worker begins anew."""


@dataclass
class Cluster:
    """What is put back: candidates on the release log, and the public ledger."""

    log: list[str] = field(default_factory=list)
    ledger: list[str] = field(default_factory=list)

    def copy(self) -> Cluster:
        return Cluster(list(self.log), list(self.ledger))


@dataclass
class World:
    """One stream. Each `compute` is another draw of noise, and a digest names all before it, as the chain does."""

    cluster: Cluster = field(default_factory=Cluster)
    witness: Mark | None = None
    shown: dict[int, set[str]] = field(default_factory=dict)
    draws: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)
    copies: list[Cluster] = field(default_factory=list)
    planted: str = ""

    def compute(self) -> None:
        self.cluster.log.append(f"{self.cluster.log[-1] if self.cluster.log else ''}/{self.draws()}")


class Publisher:
    """As the worker's, in the same order. It is not fenced by anything but the witness: a cluster that is put back may
    have forgotten its fences. `effects` yields where a crash, another worker or a restore may come between.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    def effects(self, together: int):  # type: ignore[no-untyped-def]
        world, cluster = self.world, self.world.cluster
        last, found = len(cluster.ledger) - 1, world.witness
        yield
        ahead = found is not None and found.step > last
        log = cluster.log
        if world.planted == "digest ignored" and found is not None:
            there = cluster.ledger if not ahead else log
            found = Mark("s", found.step, there[found.step], found.since) if found.step < len(there) else found
        judged = judge if world.planted != "not judged" else (lambda *_, **__: found)
        try:
            mark = judged(
                "s",
                found,
                Terms(PLACE, configured=True),
                last=last,
                last_chain=cluster.ledger[-1] if cluster.ledger else "",
                ledger=None if found is None or ahead else cluster.ledger[found.step],
                logged=log[found.step] if found is not None and ahead and found.step < len(log) else None,
            )
        except WitnessError:
            raise StoppedError from None
        while len(cluster.ledger) < len(log):
            first = len(cluster.ledger)
            due = list(enumerate(log))[first : first + together]
            if cluster.ledger and not log[first].startswith(cluster.ledger[-1]):
                raise StoppedError
            yield
            if world.planted != "written late":
                mark, found = self._note(mark, found, *due[-1])
            yield
            for step, answer in due:
                world.shown.setdefault(step, set()).add(answer)
                yield
            cluster.ledger += [answer for _, answer in due]
            if world.planted == "written late":
                yield
                mark, found = self._note(mark, found, *due[-1])
            yield

    def _note(self, mark: Mark | None, found: Mark | None, step: int, chain: str) -> tuple[Mark | None, Mark | None]:
        must = advance(mark, stream="s", step=step, chain=chain)
        if must is None:
            return mark, found
        if self.world.witness != found and self.world.planted != "written over":
            raise StoppedError
        self.world.witness = must
        return must, must


def live(world: World, moves: list[tuple[str, int]]) -> None:
    """Any order of what may happen: two workers, either of which may sleep while the other works."""
    running: dict[int, object] = {}
    for move, number in moves:
        if move == "compute":
            world.compute()
        elif move == "copy":
            world.copies.append(world.cluster.copy())
        elif move == "put back" and world.copies:
            kept = world.copies[number % len(world.copies)].copy()
            world.cluster.log[:], world.cluster.ledger[:] = kept.log, kept.ledger  # workers live through it
        elif move == "crash":
            running.pop(number % 2, None)
        elif move == "work":
            worker = number % 2
            steps = running.setdefault(worker, Publisher(world).effects(1 + number % 3))
            for _ in range(1 + number // 3):
                try:
                    next(steps)  # type: ignore[call-overload]
                except (StopIteration, StoppedError, IndexError):
                    running.pop(worker, None)
                    break


MOVES = st.lists(
    st.tuples(st.sampled_from(["compute", "work", "work", "work", "copy", "put back", "crash"]), st.integers(0, 11)),
    max_size=40,
)


@given(moves=MOVES)
def test_a_step_has_one_answer_whatever_is_put_back(moves: list[tuple[str, int]]) -> None:
    world = World()
    live(world, moves)
    assert all(len(answers) == 1 for answers in world.shown.values())


@pytest.mark.parametrize("planted", ["not judged", "digest ignored", "written late", "written over"])
def test_planted_faults_are_caught(planted: str) -> None:
    """By the same generator and the same invariant; the seed is fixed."""
    chance = random.Random(planted)
    kinds = ["compute", "work", "work", "work", "copy", "put back", "crash"]
    for _ in range(20_000):
        moves = [(chance.choice(kinds), chance.randrange(12)) for _ in range(chance.randrange(8, 40))]
        world = World(planted=planted)
        live(world, moves)
        if any(len(answers) > 1 for answers in world.shown.values()):
            return
    pytest.fail("not found")
