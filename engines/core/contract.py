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
        step: number of the step, from 0.
        events: PRIVATE.
        surplus: number of events that the bounds on users refused, itself bounded. PRIVATE; 0 if it is not counted.
        beyond: estimated number of refused events that are still alive (`engines.core.surplus`). Public.
    """

    step: int
    events: Folded
    surplus: int = 0
    beyond: float = 0.0

    def _sealed_parts(self, change: Callable[[Any], Any]) -> Batch:
        return Batch(self.step, change(self.events), change(self.surplus), self.beyond)


@dataclass(frozen=True, slots=True)
class SyntheticRecord:
    """One added synthetic record. `fields` has the raw events' field names; `id` is the key, never changes, and has no
    NUL.

    `step` is the step whose events the record represents, if the engine has `EngineFacts.dates_records`. Otherwise it
    is None: the records together represent all live events, and no record has an event time of its own.

    `weight` is the number of events that the record represents, if the stream's records are weighted
    (`EngineFacts.weighs_records`). Such a record is added again, under its id, whenever its weight changes. Otherwise
    it is None: each record represents one event.
    """

    id: str
    fields: Mapping[str, Any]
    step: int | None = None
    weight: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The whole output of a step. Public once published.

    Attributes:
        added, removed: records that are added, ids that are withdrawn. Applied in order, they give the synthetic data;
            a weighted record takes the place of the one with its id.
        measurements: JSON-able noisy measurements, with variances.
        total: number of synthetic records after this step.
        gathered: True if the engine only collected events in this step and releases no data yet. A surplus measured
            meanwhile (`engines.core.surplus`) is in `notes`, and is paid for.
        notes: public facts for the ledger, such as the number of leaves.
        spans: for records without a step, when the new events arrived, as measured: pairs (since, weight), where
            `weight` of them arrived in steps since + 1 to this one. Public. Empty: all arrived in this step.
        weight: number of events that the records together stand for, if they are weighted; None: one each.
    """

    step: int
    added: Sequence[SyntheticRecord]
    removed: Sequence[str]
    measurements: Sequence[Mapping[str, Any]]
    total: int
    gathered: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    spans: Sequence[tuple[int, float]] = ()
    weight: int | None = None

    @property
    def events(self) -> int:
        """Number of events that the synthetic records stand for."""
        return self.total if self.weight is None else self.weight


ScalarKind = Literal["text", "number", "boolean"]
"""JSON types of a scalar other than null."""


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
    """Indices of the words of a key that `encode` leaves 0 and ingest fills, if records are points of trips.

    Attributes:
        trip: keyed hash of user and trip.
        admitted: step that admitted the trip; with the hash it identifies one contribution.
        time: microseconds plus 2**63, so that unsigned order is order in time.
    """

    trip: tuple[int, int]
    admitted: int
    time: int


class Domain(Protocol):
    """Public description of the possible events, which encodes raw columns as keys. Independent of the data."""

    @property
    def number_fields(self) -> tuple[str, ...]: ...

    @property
    def text_fields(self) -> tuple[str, ...]: ...

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        """Fields that are read as any JSON scalar (`Columns.values`), with the possible types of their values.

        Values of files that hold only text, such as CSV, are converted to these types. A field is in only one of
        `number_fields`, `text_fields` and `value_fields`.
        """
        ...

    @property
    def words(self) -> int:
        """Number of uint64 words in a key."""
        ...

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Return keys `(events, words)` and `(events,)` `schemas.events.Reason`s; a key is valid if its reason is 0."""
        ...


@runtime_checkable
class FilledDomain(Protocol):
    """A domain whose events are points of trips. Ingest changes the keys of no other domain."""

    @property
    def filled(self) -> FilledWords: ...


@runtime_checkable
class ClippingDomain(Protocol):
    """A domain that clips values to its limits instead of refusing the event."""

    def clipped(self, columns: Columns) -> BoolArray:
        """Return `(events,)` bool, True where a value is clipped. Private."""
        ...


@runtime_checkable
class PairDomain(Protocol):
    """A domain whose events have more than a key, where contributions are pairs of user and key
    (`EngineFacts.contribution`); else all that is encoded is the key.
    """

    def pairs(self, keys: KeyArray) -> KeyArray:
        """Return the words of encoded events that say which key it is, `(events, words of the key)`."""
        ...


@runtime_checkable
class FaultNamingDomain(Protocol):
    """A domain that can name the fields for which it refuses an event."""

    def at_fault(self, columns: Columns) -> Sequence[str]:
        """Return the names of the fields at fault for each event; `encode` refuses all of them. Never values."""
        ...


class Engine(Protocol):
    """An engine, built by `EngineSpec.build`. It owns its state; `step` is called once for each step, in order."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        """Release step `batch.step`.

        Raises: EngineInputError if the step is not the next one or a key is outside the domain; BudgetError before
        any noise is drawn if the release would cost more than is left.
        """
        ...

    def state(self) -> State:
        """Return everything that later steps depend on, as copies of arrays. Private."""
        ...

    def restore(self, state: State) -> None:
        """Continue exactly as the engine that returned this state. Raises: EngineInputError if that was another one."""
        ...

    def guarantee(self) -> Guarantee:
        """Return the guarantee for one event over the whole stream, however long it runs."""
        ...


class Evaluator(Protocol):
    """Utility metrics against the true events. For operators only: they are not differentially private."""

    @property
    def domain(self) -> Domain:
        """Domain that encodes true events for evaluation; it may be finer than the engine's."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of `measure`, in the order of `steps.csv`."""
        ...

    @property
    def scope(self) -> Literal["alive", "step"]:
        """Whether all events alive after a step are compared, or only the events of the step."""
        ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the synthetic records that `measure` reads."""
        ...

    def size(self, truth: Folded) -> int:
        """Return the number of true records: inserts minus deletes."""
        ...

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """Return the metrics by name, as in `steps.csv`.

        Args:
            truth: all live events, or those of the step (see `scope`), encoded by `domain`; deletes count negatively.
            synthetic: columns of the live synthetic records, or of those that the step added, as consumers see them.
                A missing field is None.
        """
        ...

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """Return what `measure` would return for a release of exactly the events `kept`, without noise.

        Args:
            truth, kept: encoded by `domain`, of the same step; `kept` is the part of `truth` within the bounds.
        """
        ...
