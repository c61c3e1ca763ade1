"""The public states of a chain: a text field's value in, the state's number out.

A key is one word: the number of the state in the declared order.
Privacy: knows no data. What a record becomes depends on that record and on the public list only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from engines.core.contract import Columns, ScalarKind
from engines.core.noise import aggregate
from engines.core.state import check_events
from schemas.arrays import IntArray, KeyArray, ReasonArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason


@dataclass(frozen=True, slots=True)
class StatesDomain:
    """Implements `engines.core.contract.Domain`.

    Args:
        field_name: of the raw events, and of the released records. values: the states, in order; distinct.
    Raises: EngineInputError if there is no state or one comes twice.

    | value                | reason         |
    |----------------------|----------------|
    | one of `values`      | ACCEPTED       |
    | anything else        | OUTSIDE_DOMAIN |
    | a delete             | BAD_OPERATION  |
    """

    number_fields: ClassVar[tuple[str, ...]] = ()
    value_fields: ClassVar[Mapping[str, frozenset[ScalarKind]]] = {}
    words: ClassVar[int] = 1

    field_name: str
    values: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {value: number for number, value in enumerate(self.values)}
        if not numbers or len(numbers) != len(self.values):
            raise EngineInputError("states must be distinct, and at least one")
        object.__setattr__(self, "_numbers", numbers)

    @property
    def text_fields(self) -> tuple[str, ...]:
        return (self.field_name,)

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Return keys `(events, 1)` and reasons `(events,)`, see `engines.core.contract.Domain`.

        >>> states = StatesDomain("zone", ("a", "b"))
        >>> columns = Columns({}, {"zone": ["b", "c", "a"]}, np.int8([1, 1, 1]))
        >>> [array.tolist() for array in states.encode(columns)]
        [[[1], [0], [0]], [0, 12, 0]]
        """
        texts = columns.texts[self.field_name]
        found = np.fromiter((self._numbers.get(text, -1) for text in texts), np.int64, len(texts))
        reasons = np.where(found < 0, np.uint8(Reason.OUTSIDE_DOMAIN), np.uint8(Reason.ACCEPTED))
        # Who is where is said anew at each step: there is nothing to take back.
        reasons[columns.operations < 0] = Reason.BAD_OPERATION
        keys = np.where(reasons == Reason.ACCEPTED, found, 0).astype(np.uint64)
        return keys.reshape(-1, 1), reasons.astype(np.uint8)

    @aggregate
    def counts(self, events: Folded) -> IntArray:
        """Count the users in each state, `(states,)`; private.

        Raises: EngineInputError if events are not of this domain; it names what, never a value.
        """
        check_events(events, keys_below=len(self.values))
        occupied = np.zeros(len(self.values), np.int64)
        np.add.at(occupied, events.keys[:, 0].astype(np.int64), events.counts)
        return occupied
