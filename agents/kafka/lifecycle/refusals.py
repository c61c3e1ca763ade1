"""Saying what is refused, where people look: by reason and configured field, as shares. Never a value of a record.

A stream of which all records are refused looks as healthy as one without events: its steps close, and are published
empty. Where more than `MUCH` are refused, the configuration mostly does not fit the events, or a producer has changed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.protocol.ingest.events import PLACED_BY
from agents.protocol.partitioner import Hashing
from schemas.blocks import Block, Tally
from schemas.events import Reason

log = logging.getLogger(__name__)

FIRST = 20  # records after which the first word is said
FEWEST = 5  # refused ones among them
ENOUGH = 1_000  # records after which counting begins anew where nothing is to be said
EVERY_S = 60.0
MUCH = 0.05
"""Of a stream's records: where more are refused, the log, `status`, `doctor` and an alert say so."""
NEARLY_ALL = 0.9
NAMED = 3  # reasons in one line
REPORT = "look at the records: privstream dead-letters CONFIG --show"
REPORT_ROWS = "look at the row"
UNREFUSED = (Reason.ACCEPTED.name, Reason.OVER_BOUND.name, Reason.REPEATED.name, Reason.NO_EVENT.name)
BESIDE = (
    Reason.CLIPPED.name,
    Reason.LOST.name,
    Reason.PLACED_BY_MURMUR2.name,
    Reason.PLACED_BY_CRC32.name,
    Reason.AMBIGUOUS_TIME.name,
    Reason.NONEXISTENT_TIME.name,
    Reason.DROPPED.name,
    Reason.OTHER_PART.name,
)
"""Reasons that are counted beside the records that a share is of: what is dropped, or of another part, was never to be
an event here."""
DOUBTED: Mapping[str, str] = {
    Reason.AMBIGUOUS_TIME.name: "at a local time that clocks showed twice, of which the earlier counts (docs/time.md)",
    Reason.NONEXISTENT_TIME.name: "at a local time that clocks skipped, read as if they had not (docs/time.md)",
}
"""What is said of records that are used and of which the time is in doubt."""
UNUSED: Mapping[str, str] = {
    Reason.OVER_BOUND.name: "over the bound",
    Reason.REPEATED.name: "of a key that their user has had as often as it counts in the period",
    Reason.NO_EVENT.name: "without an event",
    Reason.DROPPED.name: "left out by drop of [streams.map]",
    Reason.OTHER_PART.name: "of other parts of the split stream",
}
"""What is said of records that are not used, and of which nothing is wrong."""
OUTCOMES: Mapping[str, str] = {
    **UNUSED,
    Reason.CLIPPED.name: "with a value beyond a limit, which was moved there",
    **DOUBTED,
}
"""What is said of records beside those that are simply used, and those that are refused."""

_TYPES = (
    "a number must be one (13.4, as a number or as text, and not 13,4), and a text a text; null is neither: correct "
    "the producer, or name another field in the configuration"
)
_DOMAIN = (
    "compare the field with [streams.domain]: bounds, units and the order of coordinates; or the values that are listed"
)
_START = "compare the field with [streams.time]: format (s, ms, us or ns?), timezone, start and step"
WHAT_TO_DO: Mapping[str, str] = {
    Reason.NOT_JSON.name: "each record must be one JSON object in UTF-8: correct the producer, or the source",
    Reason.MISSING_FIELD.name: "name the events' own field in the configuration (spelling?), or correct the producer",
    Reason.WRONG_TYPE.name: _TYPES,
    Reason.EMPTY.name: "the records have no value: is it the right source?",
    Reason.TOO_LARGE.name: "records above 1 MiB are not read: correct the producer, or the source",
    Reason.BAD_USER.name: "a user id is a text of 1 to 256 bytes or an integer: correct [streams.privacy] user",
    Reason.WRONG_PARTITION.name: "producers must key records by the user id, and place keys by the configured "
    "partitioner: murmur2 (Java, aiokafka; partitioner=murmur2_random in librdkafka) or crc32 (librdkafka's default)",
    Reason.BAD_TIME.name: 'set [streams.time] format to how the field is written ("iso" for times of Avro and '
    "Protobuf)",
    Reason.BEFORE_START.name: _START,
    Reason.TOO_FAR_AHEAD.name: _START,
    Reason.NOT_FINITE.name: "NaN and Infinity are no values: let the producer write null or leave the record out, or "
    "name another field in the configuration",
    Reason.OUTSIDE_DOMAIN.name: _DOMAIN,
    Reason.BAD_OPERATION.name: "an operation is insert or delete, as far as the engine takes both; changes u and d "
    'of Debezium are read where [streams.domain] has op = "$operation"',
    Reason.UNREADABLE.name: "the records are cut off, not of the stream's format, or hold what the schema that they "
    "name does not explain: correct format (of $key: key_format), or the producer",
    Reason.NO_SCHEMA_ID.name: "producers must write with a serializer of the registry; without one, set another format",
    Reason.UNKNOWN_SCHEMA.name: "set [kafka.registry] url to the registry that the producers write with",
    Reason.UNUSABLE_SCHEMA.name: "set format to the schemas' own kind; one that does not compile must be corrected",
    Reason.NO_ENVELOPE.name: "set envelope to what stands around the events, or correct the source",
    Reason.NO_BEFORE.name: "let the database log whole rows (PostgreSQL: REPLICA IDENTITY FULL; MySQL: "
    "binlog_row_image=full)",
    Reason.TWO_USERS.name: "rows must stay their user's: a change of owner counts where the database deletes the row "
    "of the one and inserts that of the other",
    Reason.WRONG_COLUMNS.name: "compare [streams.csv] columns and delimiter with what the producer writes",
    Reason.UNMAPPED.name: "compare the field's expression in [streams.map] with the records: privstream doctor CONFIG "
    "--record FILE tries it",
    Reason.NO_PART.name: "list the value in a part of split (a part that has started needs another name then), or "
    "leave such records out by drop of [streams.map]",
    Reason.BAD_TICK.name: "ticks come from privstream replay alone, under clock = replay: see who writes to the source",
    Reason.TICK_TOO_FAR.name: "a tick closes 10,000 steps at most: see who writes ticks to the source",
}

_ANEW = "(a stream that has started needs another name then)"
_OR_ANY = f'in the configuration, or "any", which lets the job route the records of all producers {_ANEW}'
PLACED: Mapping[Hashing, str] = {
    "crc32": "where crc32 puts their user, as kcat, confluent-kafka and all of librdkafka do by default: give those "
    f'producers partitioner=murmur2_random, or set partitioner = "crc32" {_OR_ANY}',
    "murmur2": "where murmur2 puts their user, as Java and aiokafka do by default: give those producers the "
    f'partitioner crc32 (consistent_random of librdkafka), or set partitioner = "murmur2" {_OR_ANY}',
}
"""What to do about records on the wrong partition, by the partitioner that put them there."""
NOT_PLACED = (
    "neither murmur2 (Java, aiokafka) nor crc32 (librdkafka) of their user puts them where they are: key the records "
    'by the user id, or set partitioner = "any", and the job routes them (a stream that has started needs another name '
    "then); where partitions were added, restart the producers"
)
NEARLY_EACH = 0.95
"""Of the records on the wrong partition: as many are where one partitioner puts them if their producers use it."""


def producers_partitioner(misplaced: int, placed: Mapping[Hashing, int]) -> Hashing | None:
    """Return the partitioner of the producers of misplaced records; None where it is neither.

    Records whose place has to do with neither hash are where a hash puts them once in as many as there are partitions.

    Args: misplaced: records. placed: those of them that are where each hash puts their user.
    """
    return next((hashing for hashing, n in placed.items() if misplaced and n >= NEARLY_EACH * misplaced), None)


def by_reason_and_field(block: Block) -> Counter[tuple[str, str]]:
    """Return what a block counts, by reason and, where records were refused, by field."""
    found = Seen.of(block.refused).tally
    found.update({(reason, ""): n for reason, n in block.counts.items() if reason not in block.refused})
    return found


@dataclass(slots=True)
class Seen:
    """Records by what became of them: (reason, field) -> records."""

    tally: Counter[tuple[str, str]] = field(default_factory=Counter)

    @staticmethod
    def of(tally: Tally) -> Seen:
        return Seen(Counter({(reason, name): n for reason, fields in tally.items() for name, n in fields.items()}))

    @property
    def records(self) -> int:
        return sum(n for (reason, _), n in self.tally.items() if reason not in BESIDE)

    @property
    def refused(self) -> Counter[tuple[str, str]]:
        return Counter({key: n for key, n in self.tally.items() if key[0] not in (*UNREFUSED, *BESIDE)})

    @property
    def share(self) -> float:
        """Share of the records that are refused; 0 where there are none."""
        return sum(self.refused.values()) / max(1, self.records)

    @property
    def much(self) -> bool:
        """Whether more than `MUCH` is refused, or producers are known to lose theirs."""
        return self.share > MUCH or self._losing

    @property
    def producers(self) -> Hashing | None:
        """The partitioner of those producers whose records are on the wrong partition; None: neither, or no such."""
        return producers_partitioner(self.count(Reason.WRONG_PARTITION), self._placed)

    @property
    def doubted(self) -> list[str]:
        """How many records that are used have a time in doubt, in words."""
        found = Counter({reason: n for (reason, _), n in self.tally.items()})
        return [f"{n:,} {said}" for reason, said in DOUBTED.items() if (n := found[reason])]

    @property
    def lost(self) -> int:
        """Source offsets that were deleted before they were read."""
        return self.count(Reason.LOST)

    def count(self, reason: Reason) -> int:
        """Return the records that are counted for a reason."""
        return sum(n for (name, _), n in self.tally.items() if name == reason.name)

    @property
    def read(self) -> int:
        """The records, and those that are left out."""
        return self.records + self.dropped + self.of_others

    @property
    def dropped(self) -> int:
        """Records that `[streams.map]` leaves out, on purpose."""
        return self.count(Reason.DROPPED)

    @property
    def of_others(self) -> int:
        """Records of other parts of a split stream, which count them."""
        return self.count(Reason.OTHER_PART)

    def sentence(self) -> str:
        """
        >>> Seen(Counter({("ACCEPTED", ""): 1, ("MISSING_FIELD", "lat"): 3})).sentence()
        '75% refused: MISSING_FIELD of lat 75%'
        """
        named = [self._share_of(*each) for each in self._worst]
        said = f"{percent(self.share)} refused: {', '.join(named)}" if named else "none refused"
        return f"{said}; {self.dropped:,} more {UNUSED[Reason.DROPPED.name]}" if self.dropped else said

    def advice(self) -> list[str]:
        """Return what is refused most, by reason and field with its share, and what to do about each."""
        return [f"{self._share_of(key, n)}. What to do: {self.fix(key[0])}" for key, n in self._worst]

    def what_to_do(self) -> str:
        """Return the advice for the most frequent reason, and for producers whose partitioner is found; "" where
        nothing is refused.
        """
        reasons = [reason for (reason, _), _ in self._worst[:1]]
        if self._losing and Reason.WRONG_PARTITION.name not in reasons:
            reasons.append(Reason.WRONG_PARTITION.name)
        return "; ".join(map(self.fix, reasons))

    def fix(self, reason: str) -> str:
        """Return what to do about records that are refused for a reason."""
        if reason != Reason.WRONG_PARTITION.name:
            return WHAT_TO_DO.get(reason, REPORT)
        if (found := self.producers) is None:
            return NOT_PLACED
        return f"{self._placed[found]:,} of {self.count(Reason.WRONG_PARTITION):,} are {PLACED[found]}"

    @property
    def _losing(self) -> bool:
        """Whether enough records are on the wrong partition to say that their producers have the other partitioner."""
        return self.producers is not None and self.count(Reason.WRONG_PARTITION) >= FEWEST

    @property
    def _placed(self) -> dict[Hashing, int]:
        """Records on the wrong partition that are where the other partitioner puts them; empty where none was seen."""
        return {hashing: n for hashing, reason in PLACED_BY.items() if (n := self.count(reason))}

    def _share_of(self, key: tuple[str, str], records: int) -> str:
        reason, name = key
        return f"{reason}{f' of {name}' if name else ''} {percent(records / max(1, self.records))}"

    @property
    def _worst(self) -> list[tuple[tuple[str, str], int]]:
        return self.refused.most_common(NAMED)


def percent(share: float) -> str:
    """Format a share; what there is some of is not said to be 0%."""
    return f"{share:.0%}" if share == 0 or share >= 0.01 else "under 1%"


class RefusalAlarm:
    """Alarm in the log, soon and then at most once a minute for each stream, that many of its records are refused."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, Seen] = {}
        self._said: dict[str, float] = {}

    def take(self, block: Block) -> None:
        """Take in what a committed block counts."""
        seen, now = self._seen.setdefault(block.stream, Seen()), self._clock()
        seen.tally.update(by_reason_and_field(block))
        if seen.records < FIRST or now - self._said.get(block.stream, -EVERY_S) < EVERY_S:
            return
        said = seen.much and sum(seen.refused.values()) >= FEWEST
        if said:
            self._said[block.stream] = now
            log.warning(
                "stream %s: of the last %d records %s. Its steps go on without them. What to do: %s "
                '(docs/operations.md, "Many records are refused")',
                block.stream, seen.records, seen.sentence(), seen.what_to_do(),
                extra={"stream": block.stream, "role": "ingest"},
            )  # fmt: skip
        # What was well for long must not hide what is wrong now; what is rare must not be forgotten either.
        if said or seen.records >= ENOUGH:
            del self._seen[block.stream]
