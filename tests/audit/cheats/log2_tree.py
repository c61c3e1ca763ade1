"""The tree with log2 T levels ([kumar2024], algorithm 4 as listed): an event is in one node more than was paid for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from engines.audited.counters import case
from engines.auditor.cases import Case
from engines.counters.contract import Measure
from engines.noise import NoiseSource, discrete_laplace, scale_for


@dataclass(frozen=True)
class Tree:
    """A binary tree over `horizon` activations; all its nodes are released as they close. State: values so far."""

    cost: Fraction
    horizon: int
    levels: int
    measure: ClassVar[Measure] = "epsilon"

    @property
    def scale(self) -> Fraction:
        return scale_for(self.levels, self.cost)

    def initial(self, width: int) -> dict[str, np.ndarray]:
        return {"closed": np.zeros((0, width), np.int64), "values": np.zeros((0, width), np.int64)}

    def step(self, values: np.ndarray, state: dict, source: NoiseSource) -> tuple[np.ndarray, dict]:
        seen = np.concatenate([state["values"], values[None]])
        t = len(seen)
        nodes = self._rows(t)[len(state["closed"]) :]
        noise = discrete_laplace(len(nodes) * len(values), self.scale, source).reshape(len(nodes), -1)
        closed = np.concatenate([state["closed"], nodes @ seen + noise])
        before, after = self.decoder(t)[max(t - 2, 0)], self.decoder(t)[t - 1]
        last = before[: len(state["closed"])] @ state["closed"] if t > 1 else 0
        return np.round(after @ closed - last).astype(np.int64), {"closed": closed, "values": seen}

    def _rows(self, t: int) -> np.ndarray:
        rows = []
        for now in range(1, t + 1):
            for level in range(self.horizon.bit_length()):
                if now % (1 << level) == 0:
                    row = np.zeros(t, np.int64)
                    row[now - (1 << level) : now] = 1
                    rows.append(row)
        return np.stack(rows)

    def strategy(self, t: int) -> np.ndarray:
        return self._rows(t)

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        return (self.scale,) * len(self._rows(t))

    def decoder(self, t: int) -> np.ndarray:
        rows = self._rows(t)
        index = {row.tobytes(): at for at, row in enumerate(rows)}
        out = np.zeros((t, len(rows)))
        for now in range(1, t + 1):
            begin = 0
            for level in reversed(range(self.horizon.bit_length())):
                if now >> level & 1:
                    row = np.zeros(t, np.int64)
                    row[begin : begin + (1 << level)] = 1
                    out[now - 1, index[row.tobytes()]] = 1
                    begin += 1 << level
        return out


@dataclass(frozen=True)
class TreeConfig:
    horizon: int
    levels: int

    def calibrate(self, cost: Fraction, /) -> Tree:
        return Tree(cost, self.horizon, self.levels)


def cheat() -> Case:
    return case("tree with log2 T levels", TreeConfig(4, 2), watched=4)  # type: ignore[arg-type]


def honest() -> Case:
    return case("tree with all its levels", TreeConfig(4, 3), watched=4)  # type: ignore[arg-type]
