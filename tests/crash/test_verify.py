"""The verifier of the crash tests sees what it is there to see: planted faults for each promise; a clean run passes."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable

import pytest

from schemas.blocks import Folded
from tests.crash.field import Field
from tests.crash.verify import PublicView, StreamEvidence, Verdict, answered_again, collect, judge

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(0.7)]

Clean = tuple[Field, dict[str, StreamEvidence]]


@pytest.fixture(scope="module")
def clean(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """A run without any crash, read back."""

    async def play() -> Clean:
        field = Field(bootstrap, tmp_path_factory.mktemp("clean"))
        try:
            await field.open(pause_s=0.2)
            field.start("a")
            await field.until_public(4)
            await field.settle()
            return field, await collect(field.config, field.source_partitions)
        finally:
            await field.close()

    return asyncio.run(play())


def judged(clean: Clean, plant: Callable[[StreamEvidence], None]) -> Verdict:
    field, evidence = clean
    planted = copy.deepcopy(evidence)
    plant(planted[field.config.streams[0].name])
    return judge(field.config, planted, field.source_partitions, steps=field.steps)


def test_a_clean_run_keeps_every_promise(clean: Clean) -> None:
    verdict = judged(clean, lambda evidence: None)
    assert verdict.kept, verdict.notes
    assert verdict.steps == 2 * clean[0].steps > 0


def lose_a_step(evidence: StreamEvidence) -> None:
    evidence.committed["ledger"] = [view for view in evidence.committed["ledger"] if view.step != 2]


def lose_a_seed(evidence: StreamEvidence) -> None:
    del evidence.seeds[3]


def publish_twice(evidence: StreamEvidence) -> None:
    (entry,) = [view for view in evidence.committed["ledger"] if view.step == 2]
    evidence.committed["ledger"].insert(evidence.committed["ledger"].index(entry), entry)


def change_a_byte(evidence: StreamEvidence) -> None:
    views = evidence.committed["measurements"]
    changed = views[0]
    assert changed.value is not None
    views[0] = dataclasses.replace(changed, value=changed.value.replace(b"0", b"1", 1) + b" ")


def drop_a_synthetic_record(evidence: StreamEvidence) -> None:
    del evidence.committed["synthetic"][0]


def show_another_draw_to_uncommitted_readers(evidence: StreamEvidence) -> None:
    evidence.uncommitted["ledger"].append(PublicView(1, b"1", b"another answer"))


def use_another_seed(evidence: StreamEvidence) -> None:
    # Of all steps: at one of them alone there may be no leaf whose measurement is due, and then no noise is published.
    for step in evidence.seeds:
        evidence.seeds[step] = {b"?" * 32}


def publish_out_of_order(evidence: StreamEvidence) -> None:
    evidence.committed["ledger"].reverse()


def count_an_event_twice(evidence: StreamEvidence) -> None:
    for index, block in enumerate(evidence.blocks):
        for step, events in block.steps.items():
            twice = {**block.steps, step: Folded(events.keys, events.counts * 2)}
            evidence.blocks[index] = dataclasses.replace(block, steps=twice)
            return


def lose_a_block(evidence: StreamEvidence) -> None:
    del evidence.blocks[next(index for index, block in enumerate(evidence.blocks) if block.steps)]


def lose_a_raw_record(evidence: StreamEvidence) -> None:
    """As if the job had counted an event that nobody sent."""
    del evidence.raw[0][next(index for index, record in enumerate(evidence.raw[0]) if record.value)]


@pytest.mark.parametrize(
    ("plant", "broken"),
    [
        (lose_a_step, "lost"),
        (lose_a_seed, "lost"),
        (publish_twice, "double"),
        (change_a_byte, "bytes_differing"),
        (drop_a_synthetic_record, "bytes_differing"),
        (show_another_draw_to_uncommitted_readers, "bytes_differing"),
        (use_another_seed, "bytes_differing"),
        (publish_out_of_order, "bytes_differing"),
        (count_an_event_twice, "events_miscounted"),
        (lose_a_block, "events_miscounted"),
        (lose_a_raw_record, "events_miscounted"),
    ],
)
def test_a_planted_fault_is_found(clean: Clean, plant: Callable[[StreamEvidence], None], broken: str) -> None:
    verdict = judged(clean, plant)
    assert not verdict.kept
    assert getattr(verdict, broken) > 0, verdict.notes


def keep_the_beginning(evidence: StreamEvidence) -> None:
    """As a cluster that was put back to step 2, half of which was shown then, and stopped."""
    evidence.committed["ledger"] = [view for view in evidence.committed["ledger"] if (view.step or 0) < 2]
    evidence.uncommitted["synthetic"] = [view for view in evidence.uncommitted["synthetic"] if (view.step or 0) <= 2][
        :-1
    ]


def answer_another_step(evidence: StreamEvidence) -> None:
    evidence.uncommitted["ledger"].append(PublicView(10_000, b"10000", b"an answer"))


@pytest.mark.parametrize(
    ("plant", "double"),
    [
        (lambda evidence: None, False),
        (keep_the_beginning, False),
        (show_another_draw_to_uncommitted_readers, True),
        (answer_another_step, True),
        (publish_twice, True),
    ],
)
def test_a_cluster_that_was_put_back_has_no_answer_of_its_own(
    clean: Clean, plant: Callable[[StreamEvidence], None], double: bool
) -> None:
    field, before = clean
    after = copy.deepcopy(before)
    plant(after[field.config.streams[0].name])
    assert (answered_again(before, after).double > 0) is double
