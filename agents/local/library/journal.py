"""The journal of a stream of the library: the log that Kafka keeps for the job, in memory or in one file.

Each step is written twice, as in the job: first its inputs and its seed, before any noise is drawn, and then its
candidate, which is the answer. The journal always holds one of the two, so that an interrupted step gets the answer
that it would have had, and a step with an answer never gets another one.

The file is always replaced as a whole. `<file>.lock` is locked while a stream is open, and holds how many steps were
begun, which stream it belongs to, and which process has it open. So an older copy of the file is refused, whose steps
would be answered again with other noise. A copy under another name is refused too, because it has no lock, or that of
another stream: the lock is created before the file. A copy of the whole folder is refused because the lock also holds
its own inode.

Guarantee: as long as both files exist and nobody changes them, every step has at most one answer, whatever is run
again. PRIVATE: the file holds exact counts, seeds and the key of the hash of user ids. The lock holds nothing private.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import os
import re
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.protocol.fingerprint import Fingerprint
from schemas.arrays import below, under
from schemas.errors import StateFileError, WireError
from schemas.wire import Kind, decode, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The state of a stream. An entry is never changed, only replaced. PRIVATE.

    Attributes:
        fingerprint: fingerprint with which the stream was started.
        key: key of the hash of user ids.
        first_block: offset of the first of `blocks`; earlier blocks are in the candidate and in `snapshots`.
        blocks: encoded blocks.
        snapshots: snapshots of the bounds, by bucket.
        candidate, state: answer of the last released step, encoded.
        taken: what became of the rows of the last step and of the open one.
        seed: seed of the step that is begun and has no answer; empty if there is none.
        begun: number of steps that were begun.
        batches: the step for which each batch was ingested, by the digest of the batch.
        waiting: hashes of the rows that `add` and `step` ingested for later steps, by step; see
            `agents.local.library.batches`.
        alive: synthetic records by their ids.
    """

    fingerprint: bytes
    key: bytes
    first_block: int = 0
    blocks: tuple[bytes, ...] = ()
    snapshots: Mapping[str, bytes] = field(default_factory=dict)
    candidate: bytes = b""
    state: bytes = b""
    taken: Mapping[str, Any] = field(default_factory=dict)
    seed: bytes = b""
    begun: int = 0
    batches: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[int, bytes] = field(default_factory=dict)
    alive: Mapping[str, bytes] = field(default_factory=dict)

    def encode(self) -> bytes:
        parts: dict[str, bytes] = {"fingerprint": self.fingerprint, "key": self.key, "seed": self.seed}
        parts["candidate"], parts["state"] = self.candidate, self.state
        parts |= {f"block/{index}": block for index, block in enumerate(self.blocks)}
        parts |= under("snapshot/", self.snapshots)
        parts["alive"] = b"".join(self.alive.values())
        parts |= {f"waiting/{step}": marks for step, marks in self.waiting.items()}
        header = {
            "first_block": self.first_block,
            "blocks": len(self.blocks),
            "taken": dict(self.taken),
            "begun": self.begun,
            "batches": dict(self.batches),
            "alive": [[key, len(value)] for key, value in self.alive.items()],
        }
        return encode(Kind.JOURNAL, header, {name: np.frombuffer(part, np.uint8) for name, part in parts.items()})

    @staticmethod
    def decode(data: bytes) -> JournalEntry:
        """Return the entry in a file. Raises: WireError."""
        header, arrays = decode(Kind.JOURNAL, data)
        parts = {name: array.tobytes() for name, array in arrays.items()}
        alive, at = {}, 0
        for key, length in header["alive"]:
            alive[key] = parts["alive"][at : at + length]
            at += length
        return JournalEntry(
            fingerprint=parts["fingerprint"],
            key=parts["key"],
            first_block=header["first_block"],
            blocks=tuple(parts[f"block/{index}"] for index in range(header["blocks"])),
            snapshots=below("snapshot/", parts),
            candidate=parts["candidate"],
            state=parts["state"],
            taken=header["taken"],
            seed=parts["seed"],
            begun=header["begun"],
            batches=header["batches"],
            waiting={int(step): part for step, part in below("waiting/", parts).items()},
            alive=alive,
        )


class Journal:
    """The newest entry, in memory or in a file; see the module. `open_file` opens a journal in a file.

    Attributes:
        entry: the newest entry, which `commit` replaces.
        place: name of the file; empty if there is none.
        closed: whether the journal no longer owns its file.
    """

    def __init__(self, entry: JournalEntry, path: Path | None = None, lock: int = -1) -> None:
        self.entry = entry
        self.place = "" if path is None else path.name
        self.closed = False
        self._path, self._lock = path, lock
        # A journal that takes the place of this one must not read the file while it is written.
        self._busy = threading.Lock()
        if path is not None:
            # A lock that nobody holds any more is let go, once: its number may by then be another file's.
            self._let_go = weakref.finalize(self, os.close, lock)

    def commit(self, **changes: Any) -> None:
        """Replace attributes of the entry, durably when this returns. Raises: StateFileError."""
        with self._busy:
            if self.closed:
                raise StateFileError(
                    f"{self._path}: this stream was closed, or opened again. Fix: go on with the stream that was "
                    "opened last, or open it anew."
                )
            entry = replace(self.entry, **changes)
            if self._path is not None:
                _write(self._path, entry.encode())
                if entry.begun > self.entry.begun:
                    # After the file: a crash in between leaves a file that is ahead of its lock, no older copy.
                    _say(self._path, self._lock, entry.begun)
            self.entry = entry

    def close(self) -> None:
        """Release the file: nothing more is committed there."""
        with self._busy:
            if self._path is not None and not self.closed:
                # Before the lock is released, since the next journal of this path is another one.
                _OPEN.pop(self._path, None)
                self.closed = True
                self._let_go()


_LOCK_OF, _NEXT_OF = ".lock", ".new"
"""Of the names of what stands beside a file."""
_OPEN: weakref.WeakValueDictionary[Path, Journal] = weakref.WeakValueDictionary()
"""Open journals of this process: a notebook cell that is run again takes the place of the stream that it opened."""


def open_file(path: Path, begin: JournalEntry, *, moved: bool = False) -> Journal:
    """Open the journal in a file.

    Args:
        path: the file, which is created if it does not exist.
        begin: first entry of a new file.
        moved: whether file and lock were copied together, and the originals are not used.
    Raises: StateFileError if another process has the file open, it is damaged or a copy, or its name is that of a lock.
    """
    path = path.expanduser().resolve()
    if path.suffix in (_LOCK_OF, _NEXT_OF):
        raise StateFileError(
            f"{path}: {path.suffix} is what is written beside another state file, and one of this name could take the "
            "place of that one's lock. Fix: name a file without it."
        )
    if (before := _OPEN.get(path)) is not None:
        before.close()
    lock = _lock_of(path)
    try:
        journal = _locked(path, lock, begin, moved=moved)
    except BaseException:
        os.close(lock)
        raise
    _OPEN[path] = journal
    return journal


def _lock_of(path: Path) -> int:
    """Open the lock of a file. A file that lies there without one was not begun there.

    Raises: StateFileError.
    """
    name = path.with_name(path.name + _LOCK_OF)
    # Asked first: the lock is made before the file, so where the file is there now the lock has been, too.
    there = path.exists()
    try:
        try:
            return os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if there:
                raise StateFileError(
                    f"{path} lies there without {name.name}, so it was copied, renamed or moved, and another file "
                    "might answer the same steps with other noise. Fix: go on with the file that it was copied from; "
                    f"if it was renamed or moved, do the same with its lock, to {name.name}; if the lock is lost, "
                    "start a stream under another name, whose epsilon adds to what this one has cost."
                ) from None
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Before the file: one that outlives a power cut without its lock would be refused for ever.
            _sync_folder(path)
        except BaseException:
            os.close(lock)
            raise
        return lock
    except OSError as error:
        raise StateFileError(
            f"{path}: cannot be written here ({error.strerror}). Fix: name a folder of yours."
        ) from None


def _locked(path: Path, lock: int, begin: JournalEntry, *, moved: bool) -> Journal:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StateFileError(
            f"{path}: {LockText.read(lock).holder} has this stream open, and two would answer a step twice. Fix: close "
            "that notebook's stream, or stop its kernel."
        ) from None
    said = LockText.read(lock)
    begun = said.begun
    try:
        entry = JournalEntry.decode(path.read_bytes()) if path.exists() else begin
    except WireError as error:
        raise StateFileError(
            f"{path}: {error}. Fix: name the stream's own state file; if it is damaged, put no older one in its place: "
            "start a stream under another name, whose epsilon adds to what this one has cost."
        ) from None
    if entry.begun < begun:
        what = "is an older copy: it knows" if path.exists() else "is gone:"
        raise StateFileError(
            f"{path} {what} {entry.begun} of {begun} steps that were begun, and going on would answer a step again "
            "with other noise. Fix: put the newest file back; if it is lost, start a stream under another name, whose "
            "epsilon adds to what this one has cost."
        )
    if path.exists() and said.owner not in ("", _owner(entry)):
        raise StateFileError(
            f"{path} and its lock {path.name}.lock belong to different streams: the lock was last held by "
            f"{said.holder}. So the file was copied here over another one, and the one that it was copied from might "
            "answer the same steps with other noise. Fix: go on with that one, or put back the file that the lock was "
            "made for."
        )
    inode = os.fstat(lock).st_ino
    if path.exists() and not moved and said.inode not in (0, inode):
        raise StateFileError(
            f"{path} was copied together with {path.name}.lock, as in a copy of their folder, and the one that it was "
            "copied from might answer the same steps with other noise. Fix: go on with that one; where nobody ever "
            "will, because this is another disk or machine that it moved to, pass moved=True once."
        )
    text = LockText(begun, _owner(entry), _holder(entry, path), inode)
    with _writing(path):
        os.pwrite(lock, text.encode(), 0)
        os.ftruncate(lock, len(text.encode()))
        os.fsync(lock)
    if not path.exists():
        _write(path, entry.encode())
    if entry.begun > begun:
        # A crash came between the file and its lock. What is answered from here on must not be answered by a copy of
        # the file from before; so the file's own place in its folder is made sure of, too.
        with _writing(path), path.open("rb") as file:
            os.fsync(file.fileno())
            _sync_folder(path)
        _say(path, lock, entry.begun)
    return Journal(entry, path, lock)


@dataclass(frozen=True, slots=True)
class LockText:
    """What a lock says. Nothing private: counts of steps, names, and a digest of 256 random bits.

    Attributes:
        begun: how many steps were begun. owner: names the stream that the lock was made for, see `_owner`; empty: it
            says none. holder: who opened it last, in words.
        inode: of the lock when it was written, which a renamed one keeps and a copy does not have; 0: it says none.
    """

    begun: int
    owner: str
    holder: str
    inode: int = 0

    def encode(self) -> bytes:
        """Raises: ValueError for what would be read back as something else."""
        text = f"{self.begun:020d} {self.owner}\n{self.holder}\n{self.inode}\n"
        if LockText.decode(text.encode()) != self:
            raise ValueError("a lock has no room for these numbers or words")
        return text.encode()

    @staticmethod
    def read(lock: int) -> LockText:
        return LockText.decode(os.pread(lock, _MOST_BYTES, 0))

    @staticmethod
    def decode(data: bytes) -> LockText:
        """Return what a lock says; of what another program wrote, nothing."""
        found = _LOCK.match(data[:_MOST_BYTES].decode(errors="replace"))
        if found is None:
            return LockText(0, "", _NOBODY)
        return LockText(int(found[1]), found[2] or "", found[3] or _NOBODY, int(found[4] or 0))


_NOBODY = "another process"
_MOST_BYTES = 4096
_LOCK = re.compile(r"([0-9]{20})(?: ([0-9a-f]{32}))?(?:\n([^\n]+))?(?:\n([0-9]{1,20})\n)?")


def _owner(entry: JournalEntry) -> str:
    """Return what names a stream for as long as it lives: a digest of its key, of which it tells nothing."""
    return hashlib.blake2b(entry.key, digest_size=16, person=b"privstream.lock").hexdigest()


def _holder(entry: JournalEntry, path: Path) -> str:
    """Return a description of this process, with what it has open."""
    name = Fingerprint.decode(entry.fingerprint).stream
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    said = f"process {os.getpid()} on {socket.gethostname()} (stream {name}, {path.name}, since {now})"
    # A file may have any name: a line break in it would hide the number of the lock, which stands on the next line.
    return " ".join(said.encode(errors="replace").decode().split())


def _say(path: Path, lock: int, begun: int) -> None:
    """Write into the lock how many steps were begun; on the disk when this returns. Raises: StateFileError."""
    with _writing(path):
        os.pwrite(lock, b"%020d" % begun, 0)
        os.fsync(lock)


def _sync_folder(path: Path) -> None:
    """Raises: OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or none of it; on the disk when this returns. Raises: StateFileError."""
    new = path.with_name(path.name + _NEXT_OF)
    with _writing(path):
        # Never one that is there: others might read it, whom its mode or its owner lets.
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        new.replace(path)
        _sync_folder(path)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raises: StateFileError for whatever cannot be written here."""
    try:
        yield
    except OSError as error:
        raise StateFileError(
            f"{path}: cannot be written ({error.strerror}). Fix: make room, or name another folder."
        ) from None
