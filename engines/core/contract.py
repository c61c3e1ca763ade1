"""What an engine is: one class, registered under its configured name, that the job, `simulate` and the tests all drive.

An engine is pure: no Kafka, clock, file or global. All its randomness comes from the `NoiseSource` handed to `step`,
so the same state, events and seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from engines.core.noise import NoiseSource
from schemas.arrays import BoolArray, FloatArray, KeyArray, ReasonArray
from schemas.blocks import Folded
from schemas.guarantee import Guarantee

State = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The private events of one step.

    Attributes:
        step: counts from 0 at the stream's start.
        surplus: how many events the bounds refused, up to a bound of its own; PRIVATE, 0 where nobody counts them.
        beyond: events that are alive and were refused, as `engines.core.surplus` estimates them. Public: it was
        released.
    """

    step: int
    events: Folded
    surplus: int = 0
    beyond: float = 0.0

    def _sealed_parts(self, change: Callable[[Any], Any]) -> Batch:
        return Batch(self.step, change(self.events), change(self.surplus), self.beyond)


@dataclass(frozen=True, slots=True)
class SyntheticRecord:
    """One synthetic record that appears. `fields` use the raw events' field names; `id` is its key for ever.

    `step` is the one whose events it stands for, in engines whose `EngineFacts.dates_records`. Elsewhere it is None:
    all records together stand for what is alive, and none has an event time of its own.
    """

    id: str
    fields: Mapping[str, Any]
    step: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Everything that a step lets out. Public once published.

    Attributes:
        added, removed: records that appear, ids that are withdrawn. All of them in order give the synthetic data.
        measurements: JSON-able objects, what was measured, with variances.
        total: synthetic records alive after this step.
        gathered: True while the engine still gathers its first steps and therefore releases no data. A surplus that was
            measured meanwhile (`engines.core.surplus`) is in `notes`, and is paid for.
        notes: public facts for the ledger, such as the number of leaves.
        spans: of records without a step, when what is new came: (since, weight), so much of it in steps since + 1 to
            this one, by what was measured. Public. None: it came in this step.
    """

    step: int
    added: Sequence[SyntheticRecord]
    removed: Sequence[str]
    measurements: Sequence[Mapping[str, Any]]
    total: int
    gathered: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    spans: Sequence[tuple[int, float]] = ()


ScalarKind = Literal["text", "number", "boolean"]
"""What JSON can tell apart, beside null."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Decoded raw events, column by column, as a domain's `encode` takes them: `numbers[name]` is `(events,)` float64.

    `texts[name]` is a list of str. `operations` is `(events,)` int8: +1 insert, -1 delete. `values[name]` is a list of
    JSON scalars: str, int, float, bool, or None where the field is null or absent.
    """

    numbers: Mapping[str, FloatArray]
    texts: Mapping[str, Sequence[str]]
    operations: npt.NDArray[np.int8]
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilledWords:
    """Words of a key, by their index, that `encode` leaves 0 and the ingest fills where records are points of trips.

    Attributes:
        trip: keyed hash of user and trip.
        admitted: the step that admitted the trip: with the hash, the name of ONE contribution.
        time: in microseconds, plus 2**63: ascending as unsigned numbers.
    """

    trip: tuple[int, int]
    admitted: int
    time: int


class Domain(Protocol):
    """Public description of what an event can be; turns raw columns into keys. Knows no data."""

    @property
    def number_fields(self) -> tuple[str, ...]: ...

    @property
    def text_fields(self) -> tuple[str, ...]: ...

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        """Fields that are read as any JSON scalar, see `Columns`, and which kinds their values can be, null apart.

        Where a file has texts alone, as CSV, they are read as these. No name is in two of the three.
        """
        ...

    @property
    def words(self) -> int:
        """uint64 words of a key."""
        ...

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Keys `(events, words)` and `(events,)` `schemas.events.Reason`s: where not 0, the key means nothing."""
        ...


@runtime_checkable
class FilledDomain(Protocol):
    """A domain whose events are points of trips. Of any other the ingest changes no word of a key."""

    @property
    def filled(self) -> FilledWords: ...


@runtime_checkable
class ClippingDomain(Protocol):
    """A domain that moves values outside its limits to them, instead of refusing the event."""

    def clipped(self, columns: Columns) -> BoolArray:
        """`(events,)` True where a value is moved. Private."""
        ...


@runtime_checkable
class FaultNamingDomain(Protocol):
    """A domain that can tell which of its fields keeps an event out."""

    def at_fault(self, columns: Columns) -> Sequence[str]:
        """Of each event, all of which `encode` refuses, the field or fields at fault. Names, never values."""
        ...


class Engine(Protocol):
    """See the module. Built by `EngineSpec.build`; owns its state; one call of `step` for each step, in order."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """Release step `batch.step`.

        Raises: EngineInputError if the step is not the next one or a key is outside the domain; BudgetError before
        any noise is drawn if the release would cost more than is left.
        """
        ...

    def state(self) -> State:
        """Everything that later steps depend on, as arrays. Private. Copies: later steps do not change it."""
        ...

    def restore(self, state: State) -> None:
        """Go on exactly as the engine whose `state()` this was. Raises: EngineInputError if it is another engine's."""
        ...

    def guarantee(self) -> Guarantee:
        """What one event is promised over the whole stream, however long it lives."""
        ...


class Evaluator(Protocol):
    """Utility against the truth, for operators only: its numbers are not private."""

    @property
    def domain(self) -> Domain:
        """How true events are encoded for evaluation; may be finer than the engine's."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what `measure` gives, in the order of `steps.csv`."""
        ...

    @property
    def scope(self) -> Literal["alive", "step"]:
        """What is compared: all that is alive after a step, or what the one step brought."""
        ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the synthetic records that `measure` looks at."""
        ...

    def size(self, truth: Folded) -> int:
        """How many true records these are: inserts less deletes."""
        ...

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """Metrics by name, as in `steps.csv`.

        Args:
            truth: all events alive, or those of the step (see `scope`), encoded by `domain`; where something is alive,
                keys that say delete count negatively.
            synthetic: fields of the synthetic records alive, or of those that the step added, column by column, as
                consumers see them. A field that a record lacks is None.
        """
        ...

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """What `measure` would give for a release that held exactly the events `kept`, without noise.

        Args:
            truth, kept: both encoded by `domain`, of the same step; `kept` is the part of `truth` that bounds let in.
        """
        ...
