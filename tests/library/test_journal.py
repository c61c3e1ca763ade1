"""The state file: what lies there beside its lock, and is not the newest, answers nothing."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from agents.local.library import journal as journals
from engines import configure
from schemas import steps as sequence
from schemas import zones
from schemas.errors import BatchError, FingerprintError, PrivstreamError, StateFileError, StepOrderError
from tests.library.tables import TABLES, rows

pytestmark = pytest.mark.seconds(0.2)


def begun(lock: Path) -> int:
    return int(lock.read_bytes()[:20])


def test_a_lock_that_a_crash_left_behind_its_file_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the copy from before the crash would be no older than the lock, and step 0 be answered twice."""
    state, copied, lock = tmp_path / "s.state", tmp_path / "copy", tmp_path / "s.state.lock"
    stream = configure(TABLES, state=state)
    stream.add(rows(0))
    shutil.copy(state, copied)
    with monkeypatch.context() as patch:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(os, "pwrite", killed)
        with pytest.raises(KeyboardInterrupt):
            stream.step()
    stream.close()
    assert begun(lock) == 0
    with configure(TABLES, state=state) as stream:
        assert begun(lock) == 1
        assert stream.step().step == 0
    shutil.copy(copied, state)
    with pytest.raises(StateFileError, match="is an older copy: it knows 0 of 1 steps"):
        configure(TABLES, state=state)


def test_nobody_else_may_read_the_file_whatever_lay_there_before(tmp_path: Path) -> None:
    """What a crash has left is written anew; in a folder of others it may be theirs."""
    state, left = tmp_path / "s.state", tmp_path / "s.state.new"
    stream = configure(TABLES, state=state)
    left.touch(0o666)
    left.chmod(0o666)
    with left.open("rb") as others:
        stream.step(rows(0))
        assert others.read() == b""
    assert state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("taken", ["s.state.lock", "s.state.new"])
def test_a_file_has_not_the_name_of_what_stands_beside_another_one(taken: str, tmp_path: Path) -> None:
    """A stream in the file s.state.lock replaced that file with each step, and with it the lock of s.state: a second
    process had the stream beside the first one, and each answered its next step.
    """
    with pytest.raises(
        StateFileError, match=r"is what is written beside another state file.* Fix: name a file without"
    ):
        configure(TABLES, state=tmp_path / taken)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("renamed", [False, True])
def test_a_file_without_its_lock_is_refused_each_time(renamed: bool, tmp_path: Path) -> None:
    state, other = tmp_path / "s.state", tmp_path / "other.state"
    with configure(TABLES, state=state) as stream:
        stream.add(rows(0))
    (state.rename if renamed else lambda to: shutil.copy(state, to))(other)
    for _ in range(2):  # the first refusal leaves no lock that the second would find
        with pytest.raises(StateFileError, match=r"other\.state lies there without other\.state\.lock.* Fix: go on"):
            configure(TABLES, state=other)
    if renamed:
        (tmp_path / "s.state.lock").rename(tmp_path / "other.state.lock")
        assert configure(TABLES, state=other).step().taken.rows == 40


def test_a_file_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    """It has a lock, and one that is no newer: of another stream."""
    state, other = tmp_path / "s.state", tmp_path / "other.state"
    configure(TABLES, state=other).close()
    with configure(TABLES, state=state) as stream:
        stream.step(rows(0))
    shutil.copy(state, other)
    for _ in range(2):
        with pytest.raises(
            StateFileError, match=r"belong to different streams: .*stream notebook, other\.state, since"
        ) as told:
            configure(TABLES, state=other)
    assert "Fix: " in str(told.value)
    assert configure(TABLES, state=state).step(rows(1)).step == 1


def test_a_name_with_a_line_break_does_not_hide_that_a_folder_was_copied(tmp_path: Path) -> None:
    """A line of the lock names the file, and the next one has the number that tells a copy."""
    here = tmp_path / "here"
    here.mkdir()
    configure(TABLES, state=here / "s\nt.state").close()
    shutil.copytree(here, tmp_path / "there")
    with pytest.raises(StateFileError, match="copied together with"):
        configure(TABLES, state=tmp_path / "there" / "s\nt.state")


def test_a_folder_that_was_copied_as_a_whole_is_refused_until_somebody_says_that_it_moved(tmp_path: Path) -> None:
    """File and lock fit each other there, and both would answer step 1 with noise of their own."""
    here, there, renamed = tmp_path / "here", tmp_path / "there", tmp_path / "renamed"
    here.mkdir()
    with configure(TABLES, state=here / "s.state") as stream:
        stream.step(rows(0))
    shutil.copytree(here, there)
    for _ in range(2):
        with pytest.raises(StateFileError, match=r"copied together with s\.state\.lock.* Fix: .* pass moved=True once"):
            configure(TABLES, state=there / "s.state")
    here.rename(renamed)
    with configure(TABLES, state=renamed / "s.state") as stream:
        assert stream.step(rows(1)).step == 1
    configure(TABLES, state=there / "s.state", moved=True).close()
    with configure(TABLES, state=there / "s.state") as stream:
        assert stream.next_step == 1


def test_who_has_a_stream_open_is_named(tmp_path: Path) -> None:
    """Another open description of the lock stands for another process."""
    state, lock = tmp_path / "s.state", tmp_path / "s.state.lock"
    stream = configure(TABLES, state=state)
    stream.step(rows(0))
    journals._OPEN.clear()
    with pytest.raises(
        StateFileError, match=rf"process {os.getpid()} on .* \(stream notebook, s\.state, since .* Fix: close"
    ):
        configure(TABLES, state=state)
    for again in (lambda: stream.step(rows(0)), lambda: stream.step(number=0)):
        with pytest.raises((BatchError, StepOrderError), match=r"stream notebook of s\.state"):
            again()
    entry = stream._journal.entry
    assert not any(each.hex() in lock.read_text() for each in (entry.key, entry.key[:4]))
    lock.write_bytes(b"\xff" * 60)  # whatever it holds, who is refused is told so
    with pytest.raises(StateFileError, match="another process has this stream open"):
        configure(TABLES, state=state)


def test_a_lock_without_a_file_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the two at the very first opening."""
    state = tmp_path / "s.state"
    with monkeypatch.context() as patch:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(journals, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            configure(TABLES, state=state)
    assert [path.name for path in tmp_path.iterdir()] == ["s.state.lock"]
    assert configure(TABLES, state=state).step(rows(0)).step == 0


def test_who_opens_the_file_waits_until_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads: the one that loses its place writes nothing over what the other one goes on from."""
    state, digests, refused = tmp_path / "s.state", set[str](), []
    old, write = configure(TABLES, state=state), journals._write

    def other() -> None:
        stream = configure(TABLES, state=state)
        try:
            digests.add(stream.step(rows(0), number=0).ledger["digest"])
        except StepOrderError:  # the first thread was quicker
            assert stream.last is not None
            digests.add(stream.last.ledger["digest"])

    opener = threading.Thread(target=other)

    def opened_meanwhile(path: Path, data: bytes) -> None:
        if opener.ident is None:
            opener.start()
            opener.join(0.3)  # it waits for this write, or it is through by then
        write(path, data)

    monkeypatch.setattr(journals, "_write", opened_meanwhile)
    try:
        digests.add(old.step(rows(0)).ledger["digest"])
    except PrivstreamError as error:
        refused.append(type(error))
    opener.join()
    last = configure(TABLES, state=state).last
    assert last is not None
    assert {last.ledger["digest"]} == digests
    assert refused in ([], [StateFileError])
    with pytest.raises(StateFileError):
        old.step(rows(1))


def test_another_database_of_zones_that_moves_a_begin_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = {**TABLES["time"], "step": "1 day", "timezone": "Europe/Berlin"}
    configure(TABLES, time=time, state=tmp_path / "s.state").close()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sequence, "zone", lambda name: zones.zone("Europe/London"))
            sequence._begins.cache_clear()
            with pytest.raises(FingerprintError, match=r"time\.begins was .*tzdata"):
                configure(TABLES, time=time, state=tmp_path / "s.state")
    finally:
        sequence._begins.cache_clear()
    configure(TABLES, time=time, state=tmp_path / "s.state").close()
