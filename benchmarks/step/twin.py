"""A step of held leaf counters in plain Python: one event, cell and point at a time, as one would write it down first.

The same algorithm on the same state, events and noise, without numpy but for the noise, which is the engine's own: so
what it releases can be compared with what the engine does, record by record, and time with time. Steps without hot
cells and without a ttl, on a box.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from engines.core.noise import NoiseSource
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held.engine import MERGE_EVERY, HeldConfig
from engines.spatial.held.estimate import (
    EMPTY_CELL_VARIANCES,
    HYSTERESIS_SD,
    MAX_MOVE,
    SHARE_SMOOTHING_SD,
    SPLIT_HYSTERESIS_SD,
)
from engines.spatial.held.measure import ALARM, DRIFT, DRIFT_FLOOR, MEMORY, MERGE, PRICE, SPLIT, WORN, WORTH
from engines.spatial.held.pace import CELL_DRIFT, LEAST_FACTOR, MOST_DOUBT, WHOLE_DRIFT

_MASK = (1 << 64) - 1


def _mix(word: int) -> int:
    word ^= word >> 30
    word = word * 0xBF58476D1CE4E5B9 & _MASK
    word ^= word >> 27
    word = word * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31


class Points:
    """Of one stream on a box."""

    def __init__(self, name: str, domain: BoxDomain) -> None:
        digest = hashlib.sha256(b"privstream/points/1\0" + name.encode()).digest()
        self.keys = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
        self.domain, self.depth = domain, domain.depth

    def word(self, node: int) -> int:
        """The public word of a cell."""
        return _mix(node * 0x9E3779B97F4A7C15 + self.keys[0] & _MASK)

    def first_of(self, node: int, count: int) -> int:
        """How many of a cell's first points go to its first child."""
        return (count + 1 - (self.word(node) & 1)) >> 1

    def difference(
        self, before: dict[int, int], after: dict[int, int]
    ) -> tuple[list[tuple[str, float, float]], list[str]]:
        """Records that appear and ids that go, leaf by leaf of the common refinement."""
        added: list[tuple[str, float, float]] = []
        removed: list[str] = []
        stack: list[tuple[int, int | None, int | None]] = [(1, None, None)]
        while stack:
            node, was, now = stack.pop()
            was, now = before.get(node, was), after.get(node, now)
            if was is not None and now is not None:
                # One of both may be a leaf above: then the other one has no leaf below this.
                for index in range(was, now):
                    added.append(self._record(node, index))
                for index in range(now, was):
                    removed.append(self._name(*self._finest(node, index)))
                continue
            was_first = None if was is None else self.first_of(node, was)
            now_first = None if now is None else self.first_of(node, now)
            stack.append((2 * node, was_first, now_first))
            was_second = None if was is None or was_first is None else was - was_first
            now_second = None if now is None or now_first is None else now - now_first
            stack.append((2 * node + 1, was_second, now_second))
        return added, removed

    def _finest(self, node: int, index: int) -> tuple[int, int]:
        while node < 1 << self.depth:
            node, index = 2 * node + ((index & 1) ^ (self.word(node) & 1)), index >> 1
        return node, index

    def _name(self, node: int, index: int) -> str:
        return f"{node - (1 << self.depth):0{-(-self.depth // 4)}x}-{index:x}"

    def _record(self, cell: int, number: int) -> tuple[str, float, float]:
        node, index = self._finest(cell, number)
        column = row = 0
        for level in range(self.depth):
            bit = (node >> (self.depth - 1 - level)) & 1
            if level % 2 == 0:
                column = 2 * column + bit
            else:
                row = 2 * row + bit
        start = self.word(node)
        fx = (start + index * 0xC13FA9A902A6328F & _MASK) >> 11
        fy = (_mix(start ^ self.keys[1]) + index * 0x91E10DA5C79E7B1D & _MASK) >> 11
        xmin, ymin, xmax, ymax = self.domain.bounds
        x = _place(xmin, (xmax - xmin) / (1 << self.domain.x_bits), column, fx * 2.0**-53)
        y = _place(ymin, (ymax - ymin) / (1 << self.domain.y_bits), row, fy * 2.0**-53)
        return self._name(node, index), x, y


def _place(low: float, width: float, cell: int, fraction: float) -> float:
    return round((cell + (1 / 512 + fraction * (510 / 512))) * width + low, math.ceil(3 - math.log10(width)))


NEW = -1


@dataclass(slots=True)
class Node:
    """As in `engines.spatial.held.tree.HeldTree`."""

    measured: int = 0
    parts: int = 0
    pending: int = 0
    last: int = 0
    since: int = 0
    counts: int = 0
    rate: float = 0.0
    rate_variance: float = 0.0
    forecast: float = 0.0
    doubt: float = 0.0


@dataclass(slots=True)
class Estimate:
    """As in `engines.spatial.held.estimate.Estimates`."""

    value: float
    variance: float
    unsure: float = 0.0


@dataclass(slots=True)
class Part:
    """What the watch is compared with, as in `engines.spatial.held.pace`."""

    expected: float = 0.0
    seen: float = 0.0
    doubt: float = 0.0
    cells: int = 0

    def told(self, noise: float) -> tuple[float, float]:
        """What it says of a factor: how much, and by how much more than 1."""
        return self.expected * self.expected / noise, self.expected * (self.seen - self.expected) / noise


def corrected(evidence: float, surprise: float, doubt: float, drift: float) -> tuple[float, float, float]:
    """The factors of this step and of those before, and what is not known of the first afterwards."""
    prior = doubt + drift
    known = 1 + prior * evidence
    factor = 1 + prior * surprise / known
    if abs(factor) < LEAST_FACTOR:
        factor = math.copysign(LEAST_FACTOR, factor)
    return factor, 1 + doubt / prior * (factor - 1), min(prior / known / (factor * factor), MOST_DOUBT)


class Twin:
    """The next steps of an engine whose `state` this was.

    Raises: ValueError if a cell turns hot: such steps are not in it.
    """

    def __init__(self, config: HeldConfig, state: State) -> None:
        names = list(Node.__dataclass_fields__)
        columns = [state[f"tree/{name}"].tolist() for name in names]
        self.nodes = {node: Node(*values) for node, *values in zip(state["tree/nodes"].tolist(), *columns, strict=True)}
        self.average: list[float] = state["watch/average"].tolist()
        self.whole_doubt, *self.doubts = state["watch/doubts"].tolist()
        self.rules, self.depth, self.most = config, config.domain.depth, config.max_leaves
        self.unit, self.longest = self.rules.counter.variance, self.rules.counter.longest
        assert isinstance(config.domain, BoxDomain)
        self.points = Points(config.name, config.domain)

    def step(
        self, now: int, keys: list[int], noise: NoiseSource
    ) -> tuple[list[tuple[str, float, float]], list[str], int]:
        """Records that appear (id, x, y), ids that go, and how many measurements were made."""
        before = {node: self.nodes[node].counts for node in self._leaves()}
        if now % MERGE_EVERY == 0:
            self._unite(self._estimates(now), now)
        self._follow(self._watch(keys, noise.child("watch")), now)
        for key in keys:
            self.nodes[self._leaf(key >> 1)].pending += 1 - 2 * (key & 1)
        at = self._measure(now, noise.child("leaves", 0))
        self._divide(at, self._estimates(now), now)
        self._project(self._estimates(now))
        after = {node: self.nodes[node].counts for node in self._leaves()}
        added, removed = self.points.difference(before, after)
        return added, removed, len(at)

    def _leaves(self) -> list[int]:
        return [node for node in self.nodes if 2 * node not in self.nodes]

    def _leaf(self, code: int) -> int:
        node, shift = 1, self.depth
        while 2 * node in self.nodes:
            shift -= 1
            node = 2 * node + ((code >> shift) & 1)
        return node

    def _watch(self, keys: Iterable[int], noise: NoiseSource) -> list[int]:
        watch = self.rules.watch
        counts, shift = [0] * (1 << watch.depth), self.depth - watch.depth + 1
        for key in keys:
            counts[key >> shift] += 1 - 2 * (key & 1)
        noisy = watch.noisy(np.array(counts), noise).tolist()
        if not self.average:
            self.average = [float(count) for count in noisy]
            return noisy
        for cell, count in enumerate(noisy):
            habit = abs(self.average[cell])
            if abs(count - self.average[cell]) > ALARM * float(watch.scale) + max(habit, 4 * math.sqrt(habit)):
                raise ValueError("a cell turned hot")
            self.average[cell] += MEMORY * (count - self.average[cell])
        return noisy

    def _follow(self, counts: list[int], now: int) -> None:
        watch, parts = self.rules.watch, [Part() for _ in counts]
        # All cells of a coarse leaf are one part.
        first = {leaf: self._cell(leaf) for leaf in self._leaves()}
        begins, part_of = set(first.values()), [0] * len(counts)
        for cell in range(1, len(counts)):
            part_of[cell] = cell if cell in begins else part_of[cell - 1]
        for leaf in sorted(first, key=lambda leaf: leaf << (self.depth + 1 - leaf.bit_length())):
            parts[first[leaf]].expected += self.nodes[leaf].rate
        for cell, begin in enumerate(part_of):
            parts[begin].cells += 1
            parts[begin].seen += counts[cell]
            parts[begin].doubt += self.doubts[cell]
        noise, evidence, surprise = {}, 0.0, 0.0
        for begin in sorted(begins):
            part = parts[begin]
            part.doubt /= part.cells
            noise[begin] = watch.variance * part.cells + abs(part.expected)
            told = part.told(noise[begin] + part.expected * part.expected * (part.doubt + CELL_DRIFT))
            evidence, surprise = evidence + told[0], surprise + told[1]
        factor, past, self.whole_doubt = corrected(evidence, surprise, self.whole_doubt, WHOLE_DRIFT)
        found = {}
        for begin in begins:
            parts[begin].expected *= factor
            found[begin] = corrected(*parts[begin].told(noise[begin]), parts[begin].doubt, CELL_DRIFT)
        self.doubts = [found[begin][2] for begin in part_of]
        for leaf, begin in first.items():
            node, (own, own_past, _) = self.nodes[leaf], found[begin]
            node.forecast += node.rate * (past * own_past - factor * own) * max(now - node.last - 1, 0)
            node.rate *= factor * own
            node.rate_variance *= factor * own * (factor * own)

    def _cell(self, node: int) -> int:
        """The first cell of the watch that is in a node or around it."""
        depth = self.rules.watch.depth
        up = node.bit_length() - 1 - depth
        return (node >> up if up > 0 else node << -up) - (1 << depth)

    def _measure(self, now: int, noise: NoiseSource) -> list[int]:
        due = []
        for name in self._leaves():
            node = self.nodes[name]
            steps = now - node.last
            arrivals = max(abs(node.rate), math.sqrt(node.rate_variance) / 2)
            expected = arrivals * steps + steps * steps * node.rate_variance + node.doubt
            if expected >= WORTH * self.unit * node.parts or steps >= self.longest:
                due.append(name)
        due.sort()
        pending = np.array([self.nodes[name].pending for name in due], np.int64)
        for name, increment in zip(due, self.rules.counter.noisy(pending, noise).tolist(), strict=True):
            node = self.nodes[name]
            steps = max(now - node.last, 1)
            surprise = increment - node.forecast
            variance = node.rate_variance + steps * (DRIFT / 2 * node.rate * node.rate + DRIFT_FLOOR / 2)
            error = (self.unit + max(abs(node.rate), 0.01) * steps) / (steps * steps)
            gain = variance / (variance + error)
            node.rate += gain * (surprise / steps - node.rate)
            node.rate_variance = (1 - gain) * variance
            node.measured += increment
            node.parts += 1
            node.last = node.since = now
            node.pending, node.forecast, node.doubt = 0, 0.0, 0.0
        return due

    def _estimates(self, now: int) -> dict[int, Estimate]:
        order = sorted(self.nodes)
        sums: dict[int, tuple[float, float, float, float]] = {}
        for name in reversed(order):
            node = self.nodes[name]
            coming = node.rate * (now - node.last)
            noise = self.unit * node.parts
            own = (float(node.measured), node.forecast + coming, noise, noise + abs(coming))
            if 2 * name in self.nodes:
                left, right = sums[2 * name], sums[2 * name + 1]
                own = tuple(a + (b + c) for a, b, c in zip(own, left, right, strict=True))  # type: ignore[assignment]
            sums[name] = own
        above = {1: 0.0}
        result: dict[int, Estimate] = {}
        for name in order:
            measured, coming, _, variance = sums[name]
            result[name] = Estimate(above[name] + measured + coming, variance)
            if 2 * name not in self.nodes:
                continue
            left, right = sums[2 * name], sums[2 * name + 1]
            shared = above[name] + self.nodes[name].measured
            smooth = SHARE_SMOOTHING_SD * math.sqrt(left[2] + right[2]) + 0.5
            positive = max(left[0], 0.0), max(right[0], 0.0)
            seen = positive[0] + positive[1] + 2 * smooth
            share = (positive[0] + 2 * 0.5 * smooth) / seen
            doubt = (1 - share) ** 2 * (left[2] + positive[0]) + share**2 * (right[2] + positive[1])
            result[name].unsure = shared * shared * min(doubt / (seen * seen), 0.25)
            above[2 * name] = shared * share
            above[2 * name + 1] = shared - above[2 * name]
        return result

    def _pairs(self) -> list[int]:
        """Parents of two leaves."""
        leaf = set(self._leaves())
        return [name for name in sorted(self.nodes) if 2 * name in leaf and 2 * name + 1 in leaf]

    def _divide(self, at: list[int], estimates: dict[int, Estimate], now: int) -> None:
        leaves, most, rest = len(self._leaves()), self.most - self.most // 16, self.most - self.most // 8
        urgency = {}
        for name in at:
            room = self.depth - name.bit_length() + 1
            value = max(estimates[name].value, 0.0) / (SPLIT * math.sqrt(self.unit * (self.nodes[name].parts + 1)))
            if value > 1.0 and room > 0:
                urgency[name] = value
        order = sorted(urgency, key=lambda name: -urgency[name])
        if leaves >= rest:
            held = sorted(
                max(estimates[2 * n].value, 0.0) + max(estimates[2 * n + 1].value, 0.0) for n in self._pairs()
            )
            price = PRICE * (held[min(most // 16, len(held) - 1)] if held else 0.0)
            order = [name for name in order if estimates[name].value > price]
        total = 0
        for name in order:
            halvings = min(2 if urgency[name] >= 2.0 else 1, self.depth - name.bit_length() + 1)
            total += (1 << halvings) - 1
            if total > most - leaves:
                break
            self._split(name, halvings, now)

    def _split(self, name: int, halvings: int, now: int) -> None:
        node = self.nodes[name]
        rate, variance = node.rate / 2, node.rate_variance / 4 + node.rate * node.rate / 8
        for child in (2 * name, 2 * name + 1):
            self.nodes[child] = Node(0, 1, 0, now, now, NEW, rate, variance)
            if halvings > 1:
                self._split(child, 1, now)
        node.parts, node.rate, node.rate_variance = 0, 0.0, 0.0

    def _unite(self, estimates: dict[int, Estimate], now: int) -> None:
        held, merged = {}, []
        for name in self._pairs():
            parts = self.nodes[2 * name].parts + self.nodes[2 * name + 1].parts
            held[name] = max(estimates[2 * name].value, 0.0) + max(estimates[2 * name + 1].value, 0.0)
            if held[name] / math.sqrt(self.unit * parts) < MERGE and parts > WORN:
                merged.append(name)
        excess = len(self._leaves()) - len(merged) - (self.most - self.most // 8)
        if excess > 0:
            rest = sorted((name for name in held if name not in set(merged)), key=lambda name: held[name])
            merged += rest[:excess]
        for name in merged:
            self._merge(name, now)

    def _merge(self, name: int, now: int) -> None:
        parent, children = self.nodes[name], (self.nodes.pop(2 * name), self.nodes.pop(2 * name + 1))
        for child in children:
            steps = now - child.last
            child.forecast += child.rate * steps
            child.doubt += abs(child.rate) * steps + steps * steps * child.rate_variance
        left, right = children
        for field in ("measured", "parts", "pending", "rate", "rate_variance", "forecast", "doubt"):
            setattr(parent, field, getattr(parent, field) + (getattr(left, field) + getattr(right, field)))
        parent.since, parent.last = min(left.since, right.since), now

    def _project(self, estimates: dict[int, Estimate]) -> None:
        was = {name: node.counts for name, node in self.nodes.items()}
        self.nodes[1].counts = max(round(estimates[1].value), 0)
        for name in sorted(self.nodes):
            if 2 * name not in self.nodes:
                continue
            left, right, total, before = (
                estimates[2 * name],
                estimates[2 * name + 1],
                self.nodes[name].counts,
                was[name],
            )
            if was[2 * name] < 0:
                was[2 * name] = self.points.first_of(name, before)
            was[2 * name + 1] = before - was[2 * name]
            part = left.variance / (left.variance + right.variance)
            wanted = left.value + (total - left.value - right.value) * part
            spread = part * right.variance
            some, most = (_emptied(wanted, total, doubt * spread) for doubt in EMPTY_CELL_VARIANCES)
            slack = HYSTERESIS_SD * math.sqrt(spread) + SPLIT_HYSTERESIS_SD * math.sqrt(estimates[name].unsure) + 0.5
            kept, moved = was[2 * name], total - was[2 * name + 1]
            low, high = min(kept, moved), max(kept, moved)
            room = MAX_MOVE[0] * math.sqrt(spread) * (1 + MAX_MOVE[1] / max(total, 1))
            near = min(max((some + most) / 2, low), high)
            near = min(max(near, min(some, most) - slack), max(some, most) + slack)
            near = min(max(near, low - room), high + room)
            self.nodes[2 * name].counts = min(max(round(near), 0), total)
            self.nodes[2 * name + 1].counts = total - self.nodes[2 * name].counts


def _emptied(first: float, total: int, doubt: float) -> float:
    """The first of two cells' counts when the emptier one gives up what its noise explains."""
    less = min(first, total - first)
    given = max(min(less, doubt / max(less, 1.0)), 0.0)
    return first - given if first <= total - first else first + given
