"""A configured stream as a case of the auditor: raw records in, public bytes out, by the job's own classes.

Raw JSON records and ticks -> `PartitionIngest` of every partition, restored from its blocks half-way as after a
crash -> blocks as bytes -> `Stepper`, restored half-way from its candidate -> framed public records and ledger.
Each canary is all that one user sends, or one event where unit = "event"; a user sends more than the bound allows, and
repeats it on a wrong partition: what the bound lets through is what is promised. One run has a canary in each of
`VISITS` steps (`audit_units`), but where a delta is promised: there every run has one of them or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson

from agents.offline.audit_bytes import number_measured, of_bytes
from agents.offline.audit_units import AUDITED, EVERYWHERE, Sent, Unit, alone, together
from agents.presentation import presentation
from agents.presentation.contract import Known
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import partitions_of
from agents.protocol.release.public_records import raw_time
from agents.protocol.release.stepper import Stepper
from agents.protocol.userhash import IdBytes
from engines.auditor import Canaries, Case, Claim, Fresh, Neighbours, Observations, Trials
from engines.auditor.audit import coins
from engines.auditor.engines import COLLISION, MEASURED, SEEDS, SharedRuns, by_focus, faintly
from engines.auditor.features import Features
from engines.auditor.fixture import Focus
from engines.auditor.worlds import Measurements, focused, trials
from engines.noise import NoiseSource
from engines.registry import build_domain
from schemas.blocks import Block
from schemas.config import Stream
from schemas.errors import PrivstreamError
from schemas.events import TICK_HEADER, encode_tick
from schemas.releases import Candidate

VISITS = 12
"""Steps of a run with a canary."""
LONGEST = 200
_START = "2020-01-01T00:00:00"


class StreamAudit:
    """One configured stream under audit. Cheats override a part: `ingest`, `stepper` or `publish`.

    Args: ran: called after each run, where somebody waits for it.
    """

    def __init__(self, stream: Stream, *, ran: Callable[[], None] = lambda: None) -> None:
        self._ran = ran
        time = stream.time.model_copy(update={"clock": "replay", "start": stream.time.start})
        if time.start_us is None:
            time = time.model_copy(update={"start": _START})
        self.stream = stream.model_copy(update={"time": time})
        self.partitions = 1 if stream.partitioner == "none" else 2
        self.early = 0
        self.audit_plan = presentation(stream).audit_plan(stream)
        self.late = self.audit_plan.late
        self.period = stream.period_steps
        if self.period is not None:
            # The promise is one for each aligned period: all of the user's events fall into one.
            self.early = self.late // self.period * self.period
        self.ttl_steps = stream.ttl_steps
        self.one_at_a_time = stream.privacy.delta > 0 or self.audit_plan.moved is not None
        self.active = self.late + (2 if self.one_at_a_time else VISITS)
        self.steps = min(self.active + self.audit_plan.held + (self.ttl_steps or 0), LONGEST)
        self.places = dict(self.audit_plan.places)
        self._made: dict[int, list[bytes]] = {}
        self._spec = SourceSpec.of(
            self.stream, build_domain(self.stream), key=bytes(16), partitions=self.partitions, rows=True
        )

    # --- what is sent ---------------------------------------------------------------------------------------------

    def others(self) -> list[Sent]:
        """Records that both inputs have: the audit plan's crowd, each step, all of other users."""
        crowd = [fields for fields, count in self.audit_plan.crowd for _ in range(count)]
        return [
            Sent(step, f"other-{step}-{index}", fields)
            for step in range(self.active)
            for index, fields in enumerate(crowd)
        ]

    def known(self) -> list[Known]:
        """What `others` change, as the engine sees it."""
        known: list[Known] = [(sent.step, sent.fields, 1) for sent in self.others()]
        if self.ttl_steps is not None and self.audit_plan.expiries_known:
            known += [(step + self.ttl_steps, fields, -1) for step, fields, _ in known]
        return known

    def units(self) -> Iterator[tuple[str, list[Sent]]]:
        """What one protected unit may send, by name, where it is alone in a run."""
        yield from alone(self.stream, self.places, early=self.early, late=self.late)

    def canaries(self) -> list[Unit]:
        """All that are in a run together."""
        begin = max(self.late - 3, 0)
        return together(
            self.stream, self.places, steps=range(begin, begin + VISITS), period=self.period, gathered=self.late - 1
        )

    def value(self, sent: Sent) -> bytes:
        """The raw record, as a producer writes it."""
        time, domain, user = self.stream.time, self.stream.domain, self.stream.privacy.user
        at = (self._spec.clock.start_of(sent.step) + self._spec.clock.end_of(sent.step)) // 2
        record: dict[str, Any] = {time.field: raw_time(at, time_format=time.format, timezone=time.timezone)}
        record |= sent.fields
        if user is not None:
            record[user] = sent.user
        if domain.operation_field is not None:
            record[domain.operation_field] = sent.operation
        return orjson.dumps(record)

    def records(self, sent: Sequence[Sent], partition: int) -> list[RawRecord]:
        """A partition of the source topic: events by step, a tick after each. The audited user's are on all."""
        hashing = "murmur2" if self.stream.partitioner == "none" else self.stream.partitioner
        homes = partitions_of(IdBytes.of([e.user for e in sent]), partitioner=hashing, partitions=self.partitions)
        here = [e for e, home in zip(sent, homes.tolist(), strict=True) if home == partition or self._everywhere(e)]
        records: list[RawRecord] = []
        for step in range(self.steps):
            records += [RawRecord(0, -1, None, self.value(each)) for each in here if each.step == step]
            tick = encode_tick(step, row=0, source="audit")
            records.append(RawRecord(0, -1, None, b"", ((TICK_HEADER, tick),)))
        return [record._replace(offset=offset) for offset, record in enumerate(records)]

    def _everywhere(self, sent: Sent) -> bool:
        return sent.user.startswith(AUDITED) and self.stream.checks_partition

    # --- what the job does ----------------------------------------------------------------------------------------

    def ingest(self, partition: int) -> PartitionIngest:
        return PartitionIngest(self._spec, partition)

    def stepper(self) -> Stepper:
        return Stepper.of(self.stream, self.partitions)

    def blocks(self, sent: Sequence[Sent]) -> list[bytes]:
        """The blocks topic: a block for each partition and step; every other step another worker makes it."""
        written: list[Block] = []
        machines = [self.ingest(partition) for partition in range(self.partitions)]
        waiting = [self.records(sent, partition) for partition in range(self.partitions)]
        for step in range(self.steps):
            for partition, records in enumerate(waiting):
                end = 1 + next(i for i, record in enumerate(records) if record.headers)
                machine = machines[partition]
                machine.take(records[:end])
                del records[:end]
                block, _ = machine.seal()
                if block is not None:
                    machine.committed(at=len(written))
                    written.append(block)
                if step % 2 == 0:
                    machines[partition] = self.restarted(partition, written)
        return [block.encode() for block in written]

    def restarted(self, partition: int, written: Sequence[Block]) -> PartitionIngest:
        """The machine of a worker that takes over."""
        machine = self.ingest(partition)
        for at, block in enumerate(written):
            if block.partition == partition:
                machine.apply(Block.decode(block.encode()), at=at)
        return machine

    def candidates(self, blocks: Sequence[Block], source: NoiseSource) -> Iterator[Candidate]:
        """The answers of all steps; after the late one another worker goes on."""
        stepper = self.stepper()
        for offset, block in enumerate(blocks):
            stepper.fold(offset, block)
        for step in range(self.steps):
            candidate = stepper.compute(source.child("seed", step).words(4).tobytes())
            yield candidate
            if step == self.late:
                stepper = self.stepper()
                stepper.restore(Candidate.decode(candidate.encode()))
                for offset, block in enumerate(blocks):
                    stepper.fold(offset, block)

    def publish(self, blocks: Sequence[Block], source: NoiseSource) -> Iterator[tuple[int, bytes, bytes]]:
        """Step, framed records and ledger entry of all that leaves the job, in order."""
        for candidate in self.candidates(blocks, source):
            yield candidate.step, candidate.payload, candidate.ledger

    # --- what the auditor sees ------------------------------------------------------------------------------------

    def case(self, *, units: Sequence[str] | None = None, fresh: bool = True) -> Case:
        """All canaries together, or the named units one at a time. The claim is the configured one, of the unit."""
        focuses = self.audit_plan.focuses(self.places, self.known())
        privacy = self.stream.privacy
        # Noise is all there is in this one, so that two seeds never agree by the events they count.
        faint = StreamAudit(faintly(self.stream))
        seeds = Fresh(lambda source: faint.all_bytes(faint.others(), source), collision=COLLISION, runs=SEEDS)
        alone = self.one_at_a_time or units is not None
        return Case(
            f"stream {self.stream.name}",
            "stream",
            Claim(Fraction(privacy.epsilon_fraction), privacy.delta),
            neighbours=self._pairs(units, focuses) if alone else (),
            fresh=(seeds,) if fresh else (),
            canaries=() if alone else (self._together(focuses),),
        )

    def _pairs(self, units: Sequence[str] | None, focuses: Mapping[str, Focus]) -> tuple[Neighbours, ...]:
        others = self.others()
        base = SharedRuns(self._observe(others, focuses))
        if self.audit_plan.moved is not None:
            moved = [replace(sent, fields={**sent.fields, **self.audit_plan.moved}) for sent in others]
            return (Neighbours(EVERYWHERE, base.beside(self._observe(moved, focuses)), times=1),)
        return tuple(
            Neighbours(name, base.beside(self._observe([*others, *sent], focuses)), times=1)
            for name, sent in self.units()
            if units is None or name in units
        )

    def _together(self, focuses: Mapping[str, Focus]) -> Canaries:
        canaries = self.canaries()
        covers = tuple(dict.fromkeys(fact for canary in canaries for fact in canary.facts))
        lags = 1 + self.audit_plan.held
        seen = [by_focus(focuses[canary.place], canary.step, lags=max(lags, 3)) for canary in canaries]

        def observe(runs: int, source: NoiseSource) -> Trials:
            bits = coins(runs * len(canaries), source.child("coins")).reshape(runs, -1)
            others = self.others()
            whole, places = [], []
            for run in range(runs):
                there = [each for unit, bit in zip(canaries, bits[run], strict=True) if bit for each in unit.sent]
                blocks = [Block.decode(data) for data in self.blocks([*others, *there])]
                features, measured = self._run(blocks, source.child("run", run))
                whole.append(features)
                places.append([each(measured) for each in seen])
            coverage = Counter(fact for canary in canaries for fact in canary.facts * runs)
            return trials(
                [unit.kind for unit in canaries], bits, [unit.step for unit in canaries], whole, places, coverage
            )

        return Canaries("one after the other", Counter(unit.kind for unit in canaries), observe, covers=covers)

    def _run(self, blocks: Sequence[Block], source: NoiseSource) -> tuple[list[Features], list[Measurements]]:
        """Features and measurements of each step; of a step that is answered twice an observer keeps both."""
        whole: list[Features] = [{} for _ in range(self.steps)]
        measured: list[list[Mapping[str, Any]]] = [[] for _ in range(self.steps)]
        seen: Counter[int] = Counter()
        for step, payload, ledger in self.publish(blocks, source):
            features, measurements = of_bytes(payload, ledger)
            whole[step] |= {f"{name}{', again' * seen[step]}": value for name, value in features.items()}
            measured[step] += measurements
            seen[step] += 1
        self._ran()
        return whole, list(measured)

    def _observe(self, sent: Sequence[Sent], focuses: Mapping[str, Focus]) -> Any:
        made: list[bytes] = []

        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            if not made:
                made.extend(self.blocks(sent))
            blocks = [Block.decode(data) for data in made]
            rows = []
            for index in range(runs):
                whole, measured = self._run(blocks, source.child("run", index))
                row = {f"step {step}/{name}": v for step, features in enumerate(whole) for name, v in features.items()}
                rows.append(row | self._focused(measured, focuses))
            return Observations.of_rows(rows)

        return run

    @staticmethod
    def _focused(measured: Sequence[Measurements], focuses: Mapping[str, Focus]) -> Features:
        """What each place says in each step, and in all of them together: a unit is in some."""
        found: Features = {}
        for place, focus in focuses.items():
            total = 0.0
            for step, measurements in enumerate(measured):
                said = focus(step, measurements)
                found |= {f"step {step}, {place}, {name}": value for name, value in said.items()}
                total += sum(value for name, value in said.items() if name.startswith("residual"))
            found[f"all steps, {place}, residual"] = total
        return focused(found)

    def all_bytes(self, sent: Sequence[Sent], source: NoiseSource) -> bytes:
        """All that is published of one run, of as many steps as it takes to measure something: engines hold what is
        rare, by what they have seen so far.

        Raises: PrivstreamError if `LONGEST` steps are too few to compare seeds by.
        """
        while number_measured(payload := self.published(sent, source)) < MEASURED:
            if self.steps >= LONGEST:
                raise PrivstreamError(f"stream {self.stream.name} measures too little for seeds to be compared")
            self.steps = min(2 * self.steps, LONGEST)
        return payload

    def published(self, sent: Sequence[Sent], source: NoiseSource) -> bytes:
        """All framed records of one run. Ingest draws no noise: blocks are made once for each number of steps."""
        if self.steps not in self._made:
            self._made[self.steps] = self.blocks(sent)
        blocks = [Block.decode(data) for data in self._made[self.steps]]
        return b"".join(payload for _, payload, _ in self.publish(blocks, source))
