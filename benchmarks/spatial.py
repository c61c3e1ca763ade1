"""Error of the spatial engines on every stream we have, as in the papers: `make bench-spatial` (QUICK=1: two minutes).

Mean relative error of random rectangles (small, medium, large: docs/notes/0006), over 12 steps after t0, at epsilon
0.5, 1 and 2 for one event. `paper` spends epsilon on an insert and again on its expiry, `default` once: where a
stream has a ttl, that favours `paper`. Baselines of paper 000, section 3.6.6: `offline, all data` (PrivTree on
everything alive, anew at each step: NOT private over time), `offline, changes` (PrivTree on each step's events),
`fixed tree` (PrivTree at t0, then a k-ary counter in each leaf).
Writes benchmarks/results/spatial.csv, .md and .png; the last line is JSON: ratios of `default` to `paper`, geometric
means over streams and epsilons, all of them and those on streams whose figures no constant was chosen by.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.spatial_streams import DEPTH, SOURCES, Source, StreamData
from engines.contract import Batch, Columns
from engines.counters import KaryConfig
from engines.noise import seeded
from engines.spatial import HeldConfig, HeldLeaves, PHDStream, PHDStreamConfig
from engines.spatial.partition import Changes
from engines.spatial.placement import Placement
from engines.spatial.points import Counts, difference
from engines.spatial.queries import relative_errors
from schemas.blocks import Folded

RESULTS = Path(__file__).parent / "results"
SIZES = ("small", "medium", "large")
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))
Errors = list[float]


class Scene:
    """A stream's batches, truth and queries, worked out once for all engines."""

    def __init__(self, data: StreamData) -> None:
        self.data, self.domain, self.evaluator = data, data.domain, data.evaluator
        self.batches = [data.batch(step) for step in range(len(data.inserts))]
        self.true = {step: self._true(data.alive(step, self.evaluator.domain)) for step in data.evaluated}

    def _true(self, events: Folded) -> tuple[list[np.ndarray], int]:
        """True answers of the queries of each size, and how many are alive."""
        weights = events.counts * (1 - 2 * (events.keys[:, 0] & np.uint64(1)).astype(np.int64))
        return self._answers(self._cells(events.keys, weights)), int(weights.sum())

    def _cells(self, keys: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weights on the grid of the queries, `(columns, rows)`, from keys of its domain."""
        grid = self.evaluator.domain
        column, row = grid.grid((keys.reshape(-1) >> np.uint64(1)).astype(np.int64))
        shape = (1 << grid.x_bits, 1 << grid.y_bits)
        return np.bincount(column * shape[1] + row, weights, shape[0] * shape[1]).reshape(shape)

    def _answers(self, cells: np.ndarray) -> list[np.ndarray]:
        sums = np.zeros((cells.shape[0] + 1, cells.shape[1] + 1))
        sums[1:, 1:] = cells.cumsum(axis=0).cumsum(axis=1)
        return [self.evaluator.queries[size].count(sums) for size in SIZES]  # type: ignore[arg-type]

    def _errors(self, step: int, cells: np.ndarray) -> Errors:
        true, alive = self.true[step]
        return [
            float(relative_errors(exact, answer, alive=alive).mean())
            for exact, answer in zip(true, self._answers(cells), strict=True)
        ]

    def of_counts(self, step: int, counts: Counts) -> Errors:
        """Errors of the synthetic points of released counts, as a consumer holds them."""
        points, _ = difference(self.domain, Placement("bench"), before=Counts.nothing(), after=counts)
        x, y = points.coordinates()
        columns = Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8))
        keys, reasons = self.evaluator.domain.encode(columns)
        return self._errors(step, self._cells(keys[reasons == 0], np.ones(int((reasons == 0).sum()))))

    def of_density(self, step: int, density: np.ndarray) -> Errors:
        """Errors of a density over the finest cells of the engines' domain."""
        fine = 1 << (self.evaluator.domain.depth - DEPTH)
        weights = np.repeat(np.maximum(density, 0.0) / fine, fine)
        return self._errors(step, self._cells(np.arange(len(weights), dtype=np.uint64) << np.uint64(1), weights))


def _paper(scene: Scene, epsilon: Fraction, *, whole: bool = True) -> PHDStream:
    data = scene.data
    config = PHDStreamConfig(name="bench", domain=scene.domain, epsilon=epsilon)
    if whole:
        config = PHDStreamConfig(
            name="bench",
            domain=scene.domain,
            epsilon=epsilon,
            initial_steps=data.initial_steps,
            ttl_steps=data.ttl,
        )
    return PHDStream(config)


def default(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    data = scene.data
    engine = HeldLeaves(
        HeldConfig(
            name="bench", domain=scene.domain, epsilon=epsilon, initial_steps=data.initial_steps, ttl_steps=data.ttl
        )
    )
    for step, events in enumerate(scene.batches):
        engine.step(Batch(step, events), seeded(seed).child("default", step))
        if step in scene.true:
            yield scene.of_counts(step, engine._tree.released())


def paper(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    engine = _paper(scene, epsilon)
    for step, events in enumerate(scene.batches):
        engine.step(Batch(step, events), seeded(seed).child("paper", step))
        if step in scene.true:
            yield scene.of_counts(step, engine._released)


def offline_all(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """PrivTree on all that is alive, whenever it is asked: what no private stream can do."""
    for step in scene.true:
        events = scene.data.alive(step, scene.domain)
        # Net inserts only: an insert and its delete are nobody any more.
        signs = 1 - 2 * (events.keys[:, 0] & np.uint64(1)).astype(np.int64)
        codes, where = np.unique(events.keys[:, 0] >> np.uint64(1), return_inverse=True)
        net = np.zeros(len(codes), np.int64)
        np.add.at(net, where, events.counts * signs)
        there = net > 0
        alive = Folded((codes[there] << np.uint64(1)).reshape(-1, 1), net[there])
        engine = _paper(scene, epsilon, whole=False)
        engine.step(Batch(0, alive), seeded(seed).child("all", step))
        yield scene.of_counts(step, engine._released)


def _changes(scene: Scene) -> Iterator[tuple[int, Folded]]:
    """Steps and their events, with expiries as deletes, from t0 on: the first holds everything until then."""
    data, pending = scene.data, Folded.empty(1)
    for step, events in enumerate(scene.batches):
        if data.ttl is not None and step >= data.ttl:
            expired = scene.batches[step - data.ttl]
            events = events.merge(Folded(expired.keys | np.uint64(1), expired.counts))
        pending = pending.merge(events)
        if step >= data.initial_steps - 1:
            yield step, pending
            pending = Folded.empty(1)


def _spread(starts: np.ndarray, sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Differences of the density that has `values` spread over ranges of finest cells; their running sum is it."""
    steps = np.zeros((1 << DEPTH) + 1)
    np.add.at(steps, starts, values / sizes)
    np.subtract.at(steps, starts + sizes, values / sizes)
    return steps


def _leaves(engine: PHDStream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First finest cell, number of finest cells and noisy count of each leaf, of an engine's only release."""
    leaves, tree = engine._released, engine._tree
    shift = DEPTH - leaves.depths
    return (
        (leaves.nodes << shift) - (1 << DEPTH),
        np.int64(1) << shift,
        tree.own[np.searchsorted(tree.nodes, leaves.nodes)].astype(np.float64),
    )


def offline_changes(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """PrivTree on each step's events, and the sum of what that gave."""
    total = np.zeros((1 << DEPTH) + 1)
    for step, events in _changes(scene):
        engine = _paper(scene, epsilon, whole=False)
        engine.step(Batch(0, events), seeded(seed).child("changes", step))
        total += _spread(*_leaves(engine))
        if step in scene.true:
            yield scene.of_density(step, np.cumsum(total)[:-1])


def fixed_tree(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """PrivTree on what there is at t0; later events are counted in its leaves, by k-ary counters, at all of epsilon."""
    counter = KaryConfig(horizon=len(scene.batches)).calibrate(epsilon)
    engine, state = _paper(scene, epsilon, whole=False), None
    for step, events in _changes(scene):
        noise = seeded(seed).child("fixed", step)
        if state is None:
            engine.step(Batch(0, events), noise)
            starts, sizes, counts = _leaves(engine)
            order = np.argsort(starts)
            starts, sizes, counts = starts[order], sizes[order], counts[order]
            state = counter.initial(len(starts))
            continue
        changes = Changes.of(events)
        ends = np.append(np.searchsorted(changes.codes, starts), len(changes.codes))
        increments, state = counter.step(np.diff(changes.gains[ends]), state, noise)
        counts = counts + increments
        if step in scene.true:
            yield scene.of_density(step, np.cumsum(_spread(starts, sizes, counts))[:-1])


Mode = Callable[[Scene, Fraction, int], Iterator[Errors]]
MODES: dict[str, Mode] = {
    "default": default,
    "paper": paper,
    "offline, all data": offline_all,
    "offline, changes": offline_changes,
    "fixed tree": fixed_tree,
}
Row = tuple[str, Fraction, str]


def measure_all(
    sources: dict[str, Source],
    modes: dict[str, Mode],
    epsilons: tuple[Fraction, ...],
    seeds: int,
    *,
    after: Callable[[dict[Row, np.ndarray]], None],
) -> dict[Row, np.ndarray]:
    """Errors `(seeds, sizes)`, means over evaluated steps, by stream, epsilon and mode."""
    results: dict[Row, list[np.ndarray]] = {}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("streams", total=len(sources) * seeds * len(epsilons) * len(modes))
        for name, source in sources.items():
            scene: Scene | None = None
            for seed in range(seeds):
                if scene is None or source.needs is None:
                    scene = Scene(source.make(seed))
                for epsilon in epsilons:
                    for mode, run in modes.items():
                        progress.update(task, description=f"{name}, epsilon {float(epsilon):g}, {mode}")
                        errors = np.mean(list(run(scene, epsilon, seed)), axis=0)
                        results.setdefault((name, epsilon, mode), []).append(errors)
                        progress.advance(task)
            after({row: np.array(errors) for row, errors in results.items()})
    return {row: np.array(errors) for row, errors in results.items()}


def ratios(
    results: dict[Row, np.ndarray], *, of: str = "default", to: str = "paper"
) -> dict[tuple[str, Fraction], np.ndarray]:
    """`(sizes,)` ratios of mean errors by stream and epsilon."""
    return {
        (name, epsilon): errors.mean(axis=0) / results[name, epsilon, to].mean(axis=0)
        for (name, epsilon, mode), errors in results.items()
        if mode == of
    }


def report(results: dict[Row, np.ndarray]) -> dict[str, object]:
    """What the last line says."""
    all_of_them = ratios(results)
    table = np.array(list(all_of_them.values()))
    untuned = np.array([values for (name, _), values in all_of_them.items() if not SOURCES[name].tuned])

    def mean(values: np.ndarray) -> float:
        return round(float(np.exp(np.log(values).mean())), 3)

    worst = max(all_of_them.items(), key=lambda item: float(item[1].max()))
    return {
        **{f"ratio_{size}": mean(table[:, i]) for i, size in enumerate(SIZES)},
        "ratio_all": mean(table),
        **{f"ratio_{size}_untuned": mean(untuned[:, i]) for i, size in enumerate(SIZES)},
        "ratio_all_untuned": mean(untuned),
        "worst_ratio": round(float(table.max()), 3),
        "worst": f"{worst[0][0]}, epsilon {float(worst[0][1]):g}",
    }


def markdown(results: dict[Row, np.ndarray]) -> str:
    """One table: small / medium / large, mean over seeds, and the spread as a percentage in brackets."""
    modes = list(dict.fromkeys(mode for _, _, mode in results))
    lines = ["| stream | epsilon | " + " | ".join(modes) + " | default / paper |", "|---" * (len(modes) + 3) + "|"]
    for (name, epsilon), ratio in ratios(results).items():
        cells = []
        for mode in modes:
            errors = results[name, epsilon, mode]
            mean, spread = errors.mean(axis=0), (errors.std(axis=0) / errors.mean(axis=0)).mean()
            cells.append(" / ".join(f"{value:.3f}" for value in mean) + f" (±{spread:.0%})")
        mark = " (tuned)" if SOURCES[name].tuned else ""
        values = " / ".join(f"{value:.2f}" for value in ratio)
        lines.append(f"| {name}{mark} | {float(epsilon):g} | " + " | ".join(cells) + f" | {values} |")
    return "\n".join(lines) + "\n"


def plot(results: dict[Row, np.ndarray], path: Path) -> None:
    """Errors over epsilon: a column for each stream, a row for each size; bars are standard deviations over seeds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for name, _, _ in results))
    modes = list(dict.fromkeys(mode for _, _, mode in results))
    figure, axes = pyplot.subplots(3, len(names), figsize=(2.4 * len(names), 6.5), sharex=True, squeeze=False)
    for column, name in enumerate(names):
        epsilons = [epsilon for other, epsilon, mode in results if other == name and mode == modes[0]]
        for row, size in enumerate(SIZES):
            axis = axes[row][column]
            for mode in modes:
                values = np.array([results[name, epsilon, mode][:, row] for epsilon in epsilons])
                axis.errorbar(
                    [float(epsilon) for epsilon in epsilons], values.mean(axis=1), values.std(axis=1), label=mode
                )
            axis.set_yscale("log")
            axis.set_xscale("log")
            axis.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
            axis.minorticks_off()
            if column == 0:
                axis.set_ylabel(f"{size}: relative error")
        axes[0][column].set_title(name, fontsize=9)
        axes[2][column].set_xlabel("epsilon")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(modes))
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=80)


def save(results: dict[Row, np.ndarray]) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "spatial.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["stream", "tuned", "epsilon", "mode", "size", "error", "deviation", "seeds"])
        for (name, epsilon, mode), errors in results.items():
            for i, size in enumerate(SIZES):
                mean, deviation = errors[:, i].mean(), errors[:, i].std()
                tuned = int(SOURCES[name].tuned)
                writer.writerow(
                    [name, tuned, float(epsilon), mode, size, f"{mean:.5f}", f"{deviation:.5f}", len(errors)]
                )
    (RESULTS / "spatial.md").write_text(markdown(results))
    plot(results, RESULTS / "spatial.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")), help="about 2 minutes")
    parser.add_argument("--seeds", type=int, help="5, or 2 when quick")
    parser.add_argument("--streams", help="some of them, semicolons between: " + "; ".join(SOURCES))
    parser.add_argument("--modes", help="some of them: " + "; ".join(MODES))
    arguments = parser.parse_args()
    some = arguments.quick or arguments.streams or arguments.modes
    sources = dict(SOURCES)
    if arguments.streams or arguments.quick:
        chosen = (arguments.streams or "circles, deletion;Minneapolis stops;SF evictions;Gowalla, 30 days").split(";")
        sources = {name: SOURCES[name] for name in chosen}
    for name, source in list(sources.items()):
        if source.missing:
            print(f"skipped {name}: {source.missing}", file=sys.stderr)
            del sources[name]
    modes = {
        name: MODES[name] for name in (arguments.modes or ("default;paper" if some else ";".join(MODES))).split(";")
    }
    epsilons = (Fraction(1),) if arguments.quick else EPSILONS
    results = measure_all(
        sources,
        modes,
        epsilons,
        arguments.seeds or (2 if arguments.quick else 5),
        after=lambda done: None if some else save(done),
    )
    print(markdown(results))
    print(json.dumps(report(results)))


if __name__ == "__main__":
    main()
