"""One answer for each step, whatever is run again, interrupted or copied; bounds that hold over every call."""

from __future__ import annotations

import copy
import fcntl
import os
import pickle
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.local.library import journal as journals
from agents.local.library.journal import Journal
from agents.local.library.release import Taken
from agents.local.library.stream import PrivateStream
from agents.protocol.release.stepper import Stepper
from agents.protocol.userhash import UserHash
from agents.readers.consume.columns import table_of
from engines import configure
from engines.core.noise import fresh_seed
from schemas.errors import BatchError, FingerprintError, StateFileError, StepOrderError
from tests.examples import examples
from tests.library.tables import START, TABLES, rows

pytestmark = pytest.mark.seconds(0.2)

# --- Steps --------------------------------------------------------------------------------------------------------


def test_a_step_is_released_once_and_in_order() -> None:
    stream = configure(TABLES)
    first = stream.step(rows(0), number=0)
    for again in (lambda: stream.step(rows(0), number=0), lambda: stream.step(number=0)):
        with pytest.raises(StepOrderError, match="step 0 is released, and a step has one answer"):
            again()
    with pytest.raises(BatchError, match="took in the same rows before, for step 0"):
        stream.step(rows(0))
    with pytest.raises(StepOrderError, match="step 3 is not the next one, 1 is"):
        stream.step(rows(3), number=3)
    with pytest.raises(StepOrderError, match="all steps before 1 are released"):
        stream.run(rows(0), until=1)
    assert stream.last is first
    assert stream.next_step == 1
    assert stream.step(rows(0), repeated=True).taken.late == 40


def test_a_stream_with_weights_keeps_one_record_for_each_cell_and_the_same_noise() -> None:
    both = {}
    for form in ("single", "weighted"):
        stream = configure({**TABLES, "records": {"form": form}}, insecure_seed=3)
        both[form] = stream.step(rows(0)), stream.step(rows(1, first=100)), stream.synthetic()
    (*ones, single), (*many, weighted) = both["single"], both["weighted"]
    assert [each.measurements for each in many] == [each.measurements for each in ones]
    assert weighted.column_names == [*single.column_names, "weight"]
    assert sum(weighted.column("weight").to_pylist()) == single.num_rows == many[-1].ledger["notes"]["weight"]
    assert weighted.num_rows == many[-1].ledger["synthetic_records"] < single.num_rows
    assert set(many[0].ids) & set(many[1].ids), "a record is changed in place"


def misfit(step: int) -> dict[str, Any]:
    return {**rows(step), "x": np.full(40, 7.0)}


@pytest.mark.parametrize(
    "call",
    [
        lambda stream: stream.step(misfit(1)),
        lambda stream: stream.add({**rows(1), "at": ["noon"] * 40}),
        lambda stream: stream.run(misfit(2), until=4),
    ],
)
def test_a_batch_of_which_no_row_can_be_used_uses_up_no_step(call: Callable[[PrivateStream], Any]) -> None:
    stream = configure(TABLES)
    stream.step(rows(0))
    before = stream._journal.entry
    with pytest.raises(BatchError, match=r"no row of the batch can be used: \w+ of (x|at), 40 rows: "):
        call(stream)
    assert stream._journal.entry is before
    assert [each.taken.accepted for each in stream.run(rows(1), until=3)] == [40, 0]
    assert stream.step().taken == Taken(), "a step without rows is released"


def test_one_row_that_can_be_used_is_enough_and_bounds_are_not_asked() -> None:
    """One beyond the first rows, in the last step that is run; of a user who has no contributions left."""
    stream = configure(TABLES)
    stream.run({**rows(0, users=1), "at": [START]}, until=1)
    stream.step({**rows(1, users=1)})
    last = {name: np.concatenate([misfit(2)[name]] * 200 + [rows(3, users=1)[name]]) for name in misfit(2)}
    with pytest.warns(UserWarning, match="refused many"):
        *_, release = stream.run(last, until=4)
    assert release.taken == Taken(rows=1, over_bound=1)


def test_a_batch_that_was_run_in_part_goes_on_whatever_is_left_of_it() -> None:
    stream = configure(TABLES)
    batch = [{"who": 1, "at": START, "x": 0.5, "y": 0.5}, {"who": 2, "at": "noon", "x": 0.5, "y": 0.5}]
    with pytest.warns(UserWarning, match="refused many"):
        released = [stream.run(batch, until=until)[0].taken for until in (1, 2)]
    assert [(taken.accepted, taken.left, sum(taken.refused.values())) for taken in released] == [(1, 0, 1), (0, 1, 1)]


def test_a_copy_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = configure(TABLES)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a copy would answer its steps again"):
            copied(stream)
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(StateFileError, match="is a fork"):
        stream.step(rows(0))


def test_rows_wait_for_their_step_and_late_ones_join_the_open_one() -> None:
    stream = configure(TABLES)
    assert stream.add(rows(1)).waiting == 40
    assert stream.add(rows(0, first=100)).waiting == 0
    first = stream.step()
    assert (first.taken.rows, first.taken.accepted, first.taken.waiting) == (80, 80, 40)
    assert stream.step(rows(0, first=200)).taken.late == 40
    assert stream.step().taken.rows == 0


@pytest.mark.parametrize("kept", [False, True])
def test_a_user_is_bounded_over_all_calls(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.local.library.stream.SNAPSHOT_BYTES", 4_000)  # bounds are written down, and blocks go
    state = tmp_path / "s.state" if kept else None
    stream, accepted = configure(TABLES, state=state), 0
    for step in range(8):
        if kept:
            stream.close()
            stream = configure(TABLES, state=state)
        stream.add(rows(step, users=60, first=1000 * (step + 1)))  # others, so that there is something to write down
        accepted += stream.step(rows(step, users=3)).taken.accepted - 60
    assert accepted == 3 * 2
    assert len(stream._journal.entry.blocks) < 8
    assert stream._journal.entry.snapshots


def test_records_alive_are_those_that_came_and_did_not_go(tmp_path: Path) -> None:
    stream = configure(TABLES, domain={**TABLES["domain"], "ttl": "2h"}, state=tmp_path / "s.state")
    alive: dict[str, Any] = {}
    for release in (stream.step(rows(step, first=100 * step)) for step in range(6)):
        for removed in release.removed:
            del alive[removed]
        alive.update(zip(release.ids, release.records, strict=True))
        assert release.to_arrow().num_rows == len(release.records) == len(release.to_pandas())
    assert stream.synthetic().num_rows == len(alive) == stream.last.ledger["synthetic_records"]
    assert (
        configure(TABLES, domain={**TABLES["domain"], "ttl": "2h"}, state=tmp_path / "s.state")
        .synthetic()
        .equals(stream.synthetic())
    )


def test_a_column_of_several_types_is_of_texts() -> None:
    records: list[dict[str, Any]] = [
        {"zip": 94102, "n": 1},
        {"zip": "other", "n": 0.5},
        {"zip": None},
        {"zip": True, "n": None},
    ]
    assert table_of(records).to_pydict() == {
        "zip": ["94102", "other", None, "true"],
        "n": [1.0, 0.5, None, None],
    }
    assert table_of([]).num_rows == 0


def test_nothing_private_is_shown_unasked() -> None:
    stream = configure(TABLES, insecure_seed=3)
    release = stream.step(rows(0, users=37))
    for shown in (
        repr(stream),
        repr(release),
        str(release),
        stream.guarantee()._repr_markdown_(),
        repr(release.ledger),
    ):
        assert "37" not in re.sub("[0-9a-f]{32,}", "", shown), "but in a digest, by chance"
    assert "37" in repr(release.taken)


# --- Interrupts ---------------------------------------------------------------------------------------------------


class Interrupts:
    """A pulled plug at the n-th of the points before and after each commit and each computation."""

    def __init__(self, at: set[int]) -> None:
        self.at, self.seen, self.answers = at, 0, defaultdict[int, set[str]](set)

    def point(self) -> None:
        self.seen += 1
        if self.seen in self.at:
            raise KeyboardInterrupt

    def plug(self, patch: pytest.MonkeyPatch) -> None:
        commit, compute = Journal.commit, Stepper.compute

        def committing(journal: Journal, **changes: Any) -> None:
            self.point()
            commit(journal, **changes)
            self.point()

        def computing(stepper: Stepper, seed: bytes, **more: Any) -> Any:
            self.point()
            candidate = compute(stepper, seed, **more)
            self.answers[candidate.step].add(candidate.digest)
            self.point()
            return candidate

        patch.setattr(Journal, "commit", committing)
        patch.setattr(Stepper, "compute", computing)


def insist(state: Path | None, interrupts: Interrupts, *, reopen: bool) -> list[str]:
    """A notebook whose cells are run again until they end. Returns: the digests that its user holds."""
    stream, held = configure(TABLES, state=state), {}
    for step in range(3):
        while step not in held:
            try:
                release = stream.step(rows(step), number=step)
                held[release.step] = release.ledger["digest"]
            except KeyboardInterrupt:
                if reopen:
                    stream.close()
                    stream = configure(TABLES, state=state)
            except StepOrderError:  # it was answered, and the answer did not arrive
                assert stream.last is not None
                held[stream.last.step] = stream.last.ledger["digest"]
    assert stream.last is not None
    assert stream.next_step == 3
    return [held[step] for step in range(3)]


@settings(max_examples=examples(0.24), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(1, 24), max_size=6), st.sampled_from(["memory", "file", "reopened"]))
def test_interrupts_give_no_second_answer(tmp_path: Path, at: set[int], where: str) -> None:
    interrupts = Interrupts(at)
    state = None if where == "memory" else tmp_path / "s.state"
    for leftover in tmp_path.iterdir():
        leftover.unlink()
    with pytest.MonkeyPatch.context() as patch:
        interrupts.plug(patch)
        held = insist(state, interrupts, reopen=where == "reopened")
    assert {step: {digest} for step, digest in enumerate(held)} == interrupts.answers


def test_a_stream_that_forgets_its_seed_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: noise that is not that of the seed that was written down."""
    monkeypatch.setattr("agents.local.job.Stepper.compute", _reseeded(Stepper.compute))
    interrupts = Interrupts({4})
    interrupts.plug(monkeypatch)
    insist(None, interrupts, reopen=False)
    assert max(map(len, interrupts.answers.values())) > 1


def _reseeded(compute: Any) -> Any:
    def run(stepper: Stepper, seed: bytes, **more: Any) -> Any:
        return compute(stepper, fresh_seed(), **more)

    return run


def test_an_interrupted_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    history = {name: np.concatenate([rows(step)[name] for step in range(4)]) for name in rows(0)}
    whole = [each.ledger["digest"] for each in configure(TABLES, insecure_seed=3).run(history, until=4)]
    for at in range(1, 25, 2):
        stream, digests = configure(TABLES, insecure_seed=3), []
        with pytest.MonkeyPatch.context() as patch:
            Interrupts({at}).plug(patch)
            with pytest.raises(KeyboardInterrupt):
                stream.run(history, until=4)
        done = stream.next_step if stream._whole else None
        assert done is None
        try:
            digests = [each.ledger["digest"] for each in stream.run(history, until=4)]
        except StepOrderError:
            assert stream.next_step == 4
        assert digests == whole[len(whole) - len(digests) :]


# --- The state file -----------------------------------------------------------------------------------------------


def test_a_state_file_is_the_owners_alone_and_holds_no_id(tmp_path: Path) -> None:
    state = tmp_path / "s.state"
    with configure(TABLES, state=state) as stream:
        stream.step({**rows(0), "who": [f"somebody-{row}" for row in range(40)]})
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "s.state": 0o600,
        "s.state.lock": 0o600,
    }
    assert b"somebody" not in journals.JournalEntry.decode(state.read_bytes()).encode()


def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    state, copy = tmp_path / "s.state", tmp_path / "copy"
    stream = configure(TABLES, state=state)
    stream.step(rows(0))
    shutil.copy(state, copy)
    stream.step(rows(1))
    stream.close()
    shutil.copy(copy, state)
    with pytest.raises(StateFileError, match="is an older copy: it knows 1 of 2 steps"):
        configure(TABLES, state=state)
    state.unlink()
    with pytest.raises(StateFileError, match="is gone: 0 of 2 steps"):
        configure(TABLES, state=state)


def test_another_process_is_kept_out_and_the_same_one_takes_over(tmp_path: Path) -> None:
    state = tmp_path / "s.state"
    old = configure(TABLES, state=state)
    old.step(rows(0))
    new = configure(TABLES, state=state)
    with pytest.raises(StateFileError, match="opened again"):
        old.step(rows(1))
    with pytest.raises(BatchError, match="took in the same rows"):
        new.step(rows(0))
    new.close()
    with (tmp_path / "s.state.lock").open() as other:  # a description of its own is locked out as a process is
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StateFileError, match=f"process {os.getpid()} on .* has this stream open"):
            configure(TABLES, state=state)


def test_a_state_whose_users_were_hashed_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "s.state"
    configure(TABLES, state=state).close()
    of_ids = UserHash.of_ids
    with monkeypatch.context() as other:
        other.setattr(UserHash, "of_ids", lambda self, ids: of_ids(self, ids) + np.uint64(1))
        with pytest.raises(FingerprintError, match="user_key_id"):
            configure(TABLES, state=state)
    configure(TABLES, state=state).close()


def test_a_state_of_another_promise_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "s.state"
    configure(TABLES, state=state).close()
    with pytest.raises(FingerprintError, match=r"privacy\.epsilon was '2' and is '3'"):
        configure(TABLES, privacy={**TABLES["privacy"], "epsilon": 3}, state=state)
    with pytest.raises(FingerprintError, match="seeds was 'secure' and is 'insecure'"):
        configure(TABLES, state=state, insecure_seed=1)
    state.write_bytes(state.read_bytes()[:-9])
    with pytest.raises(StateFileError, match="damaged JOURNAL record"):
        configure(TABLES, state=state)
    with pytest.raises(StateFileError, match="name a folder of yours"):
        configure(TABLES, state=tmp_path / "nowhere" / "s.state")
