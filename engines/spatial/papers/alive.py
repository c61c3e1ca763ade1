"""All that is alive, f_t: what an offline algorithm is run on again at every step. Private, O(distinct cells)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.contract import State
from engines.noise import aggregate
from engines.state import reading
from schemas.arrays import IntArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, eq=False)
class Alive:
    """Inserts minus deletes of each finest cell in which they differ.

    Attributes:
        codes: `(cells,)` int64 finest cells, ascending. net: `(cells,)` int64, not zero; negative where more was
            deleted than had come.
    """

    codes: IntArray
    net: IntArray

    @staticmethod
    def nothing() -> Alive:
        return Alive(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @aggregate
    def after(self, events: Folded) -> Alive:
        """With the inserts and deletes of a step."""
        keys = events.keys[:, 0]
        signs = 1 - 2 * (keys & np.uint64(1)).astype(np.int64)
        codes = np.concatenate([self.codes, (keys >> np.uint64(1)).astype(np.int64)])
        codes, where = np.unique(codes, return_inverse=True)
        net = np.zeros(len(codes), np.int64)
        np.add.at(net, where, np.concatenate([self.net, events.counts * signs]))
        return Alive(codes[net != 0], net[net != 0])

    @aggregate
    def inserts(self) -> Folded:
        """What is there, as inserts. One event moves one cell's count by one at most: below zero it moves nothing."""
        there = self.net > 0
        return Folded((self.codes[there].astype(np.uint64) << np.uint64(1)).reshape(-1, 1), self.net[there])

    def arrays(self) -> State:
        return {"alive/codes": self.codes.copy(), "alive/net": self.net.copy()}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> Alive:
        """Raises: EngineInputError if arrays are missing or of different lengths."""
        with reading():
            codes, net = np.array(arrays["alive/codes"], np.int64), np.array(arrays["alive/net"], np.int64)
        if codes.shape != net.shape or codes.ndim != 1:
            raise EngineInputError("the state's living events do not fit together")
        return Alive(codes, net)
