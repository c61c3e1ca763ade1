"""What a stream was started with, and why it must not change: stored history and the guarantee rest on it.

The first record of a stream in the fingerprints topic holds for ever, but for the number of partitions of its source:
a later record that says from how many it was raised holds from then on (`agents.protocol.ingest.added`). Configuration
that may change under a running stream is left out by `Stream.fingerprint_fields`. No secret is in here: of the user key
only an id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schemas.errors import FingerprintError, WireError

VERSION = 1

FIXES: Mapping[str, str] = {
    "source_topic_id": "the source topic was deleted and created again, so its offsets name other events. Start a "
    "new stream under another name for the new topic; the budget of the old one is spent",
    "routed_from_partitions": "the source topic has another number of partitions, and steps of a replay that is routed "
    "are over once they are in each of them. Start a new stream under another name; the budget of the old one is spent",
    "routed_from_id": "the source topic was deleted and created again, so its offsets name other events. Start a new "
    "stream under another name for the new topic; the budget of the old one is spent",
    "source_partitions": "the source topic has another number of partitions, so users moved between them and their "
    "bounds are split. Stop all workers and run privstream topics CONFIG --add-partitions TOPIC=NUMBER",
    "user_key_id": "the secret key of the user hash is another one, or this version of privstream hashes users "
    "otherwise, so every user would count as new. Give back the old key file, or go on with the version that started "
    "the stream",
    "seeds": "a stream whose noise can be repeated is not private, and never becomes so again. Start a new stream "
    "under another name, with --insecure-seed or without it from its first step on",
    "noise": "this version of privstream draws other noise for this mode than the stream was started with; CHANGELOG, "
    "Privacy, says which and why. Start a new stream under another name: what the old one has cost stays spent, and "
    "the new one's epsilon adds to it. Unless CHANGELOG says that the old noise was too little, the version that "
    "started the stream may go on with it",
    "output.schema": "this version of privstream writes records of another schema than the stream was started with, "
    "and a step must have the same bytes whoever writes it. Go on with the version that started the stream, or start "
    "a new stream under another name: what the old one has cost stays spent, and the new one's epsilon adds to it",
    "time.clock": "set it back to the stored value. A stream that replays history goes live by privstream replay "
    "--then-live, with the same epsilon, and its configuration stays as it is; what a wall clock has begun cannot be "
    "replayed, and history is for a new stream under another name",
    "time.begins": "by the time zone database of this machine a step of the calendar begins at another time than by "
    "the one with which the stream was started, so an event could join another step than it did. Install tzdata "
    "of the stored release; for new rules of a zone start a new stream under another name: what the old one has cost "
    "stays spent, and the new one's epsilon adds to it",
    "job_partitions": "set [kafka] partitions back to the stored number, with which the private topics were created",
}
OF_ROUTED: Mapping[str, str] = {
    "source_topic_id": "the topic with the routed records was deleted and created again, so its offsets name other "
    "records. Start a new stream under another name; the budget of the old one is spent",
    "source_partitions": "the topic with the routed records has another number of partitions, and the job routes users "
    "by those that it had. Start a new stream under another name; the budget of the old one is spent",
}
"""Fixes of a stream whose source is a topic that the job routes its records to."""
BEGINS = "time.begins"
DATABASE = "time.tzdata"
"""Noted, never compared: two databases may say the same of a zone."""
PARTITIONS = "source_partitions"
ROUTED_FROM = "routed_from_id"
"""The id of the source, where `source_topic_id` and `source_partitions` are those of the routed topic."""
ROUTED_PARTITIONS = "routed_from_partitions"
"""Those of that source, where it is replayed: each of them closes steps."""
SOURCE = frozenset({"source_topic_id", PARTITIONS, ROUTED_FROM, ROUTED_PARTITIONS})
"""Where nothing else differs, what was read of the source before is still whole: only nothing more may be read."""
OF_WORKERS = frozenset({"user_key_id", "seeds", "noise"})
"""What only who hashes users and draws noise has: `privstream replay` does neither, and may be of another version."""
CONFIGURED = (
    "set it back to the stored value, or start a new stream under another name: what the old one has cost stays spent, "
    "and the new one's epsilon adds to it"
)


@dataclass(frozen=True)
class Fingerprint:
    """Public facts that one stream was started with.

    Attributes:
        fields: JSON-able, possibly nested.
        start: local time at which step 0 begins; decided once, also where the configuration says "now".
        raised_from: partitions of the source before some were added; None: as the stream was started.
    """

    stream: str
    fields: Mapping[str, Any]
    start: str
    raised_from: int | None = None

    def encode(self) -> bytes:
        record = {"version": VERSION, "stream": self.stream, "start": self.start, "fields": dict(self.fields)}
        if self.raised_from is not None:
            record["raised_from"] = self.raised_from
        return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def decode(data: bytes) -> Fingerprint:
        """Raises: WireError."""
        try:
            record = orjson.loads(data)
            if record["version"] != VERSION:
                raise WireError(f"fingerprint of version {record['version']}; this release reads {VERSION}")
            return Fingerprint(record["stream"], record["fields"], record["start"], record.get("raised_from"))
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise WireError(f"damaged fingerprint of {len(data)} bytes: {type(error).__name__}") from None

    def differing(self, now: Fingerprint) -> dict[str, tuple[Any, Any]]:
        """Return field -> what it was and what it is asked to be now, where that differs."""
        stored, asked = dict(_flat(self.fields)), dict(_flat(now.fields))
        both = {name: (stored.get(name), asked.get(name)) for name in sorted(stored.keys() | asked.keys())}
        found = {name: (before, after) for name, (before, after) in both.items() if before != after}
        database = found.pop(DATABASE, None)
        if database is not None and BEGINS in found:
            (before, after), (its, ours) = found[BEGINS], database
            found[BEGINS] = (f"{before} (tzdata {its})", f"{after} (tzdata {ours})")
        return found

    def check(self, now: Fingerprint, *, apart_from: Collection[str] = ()) -> None:
        """Compare with what is asked for now. Raises: FingerprintError with every field and its fix.

        Args: apart_from: fields that may differ.
        """
        differing = self.differing(now)
        # Of another engine or mode it is another noise of course, and no version that started the stream would help.
        apart = {*apart_from, *({"noise"} if differing.keys() & {"engine", "mode"} else ())}
        fixes = {**FIXES, **OF_ROUTED} if ROUTED_FROM in self.fields else FIXES
        lines = [
            f"{name} was {before!r} and is {after!r}: {fixes.get(name, CONFIGURED)}"
            for name, (before, after) in differing.items()
            if name not in apart
        ]
        if lines:
            raise FingerprintError(f"stream {self.stream} was started with something else\n  " + "\n  ".join(lines))

    def raised(self, partitions: int) -> Fingerprint:
        """Return the fingerprint of the same stream once its source has more partitions."""
        fields = {**self.fields, PARTITIONS: partitions}
        return replace(self, fields=fields, raised_from=int(self.fields[PARTITIONS]))


def holding(records: Iterable[bytes]) -> dict[str, Fingerprint]:
    """Return stream -> the record that holds: its first one, raised by those that follow from it. Raises: WireError."""
    found: dict[str, Fingerprint] = {}
    for data in records:
        fingerprint = Fingerprint.decode(data)
        before = found.setdefault(fingerprint.stream, fingerprint)
        if fingerprint.raised_from is not None and before.raised(fingerprint.fields[PARTITIONS]) == fingerprint:
            found[fingerprint.stream] = fingerprint
    return found


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            # Through JSON and back, so that a stored 1.0 equals a configured 1.0, and tuples equal lists.
            yield f"{prefix}{name}", orjson.loads(orjson.dumps(value))
