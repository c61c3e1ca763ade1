"""AIM [mckenna2022] of smartnoise-synth on one table: a program for `.venv-price`, where nothing of ours is installed.

    python aim_process.py QUESTION.npz ANSWER.npz

Question: codes `(rows, attributes)`, sizes `(attributes,)`, epsilon, delta, seed, model_mb, rows. Answer: pairs, the
model's counts of all pairs of attributes, in order; synthetic, so many synthetic rows, if asked for; rounds.
Theirs is the mechanism: what it measures, with how much noise, when it stops, and its calibration (zCDP from epsilon
and delta). Changed is what costs time and no privacy, without which a table takes an hour: noise of the same law comes
from numpy, so that a seed gives the same again; the size of a model is that of its junction tree, as in the paper
(theirs adds up the sizes of its cliques, which lets trees of any size through); and the graphical model is fitted by
`tree_fit`, from where the last fit ended.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore")

import mbi  # noqa: E402
import numpy as np  # noqa: E402
from snsynth.aim import aim  # noqa: E402
from tree_fit import Measured, TreeModel, fitted, tree_of  # noqa: E402

Clique = tuple[str, ...]


class Table:
    """Counts as AIM reads them."""

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts

    def datavector(self) -> np.ndarray:
        return self.counts.ravel()


class Model:
    """A fit as AIM reads it."""

    def __init__(self, fit: TreeModel, domain: Any, cliques: list[Clique]) -> None:
        self.fit, self.domain, self.cliques = fit, domain, cliques

    def project(self, clique: Clique) -> Table:
        return Table(self.fit.marginal(tuple(map(self.domain.attributes.index, clique))))


class Fits:
    """`mbi.estimation`, as AIM calls it."""

    def __init__(self) -> None:
        self.last: TreeModel | None = None
        self.rounds = -1

    def mirror_descent(self, domain: Any, measurements: Any, **_: Any) -> Model:
        measured = [
            Measured(
                tuple(map(domain.attributes.index, each.clique)),
                np.asarray(each.noisy_measurement, float),
                float(each.stddev),
            )
            for each in measurements
        ]
        self.last = fitted(tuple(domain.shape), measured, self.last)
        self.rounds += 1
        return Model(self.last, domain, list(dict.fromkeys(each.clique for each in measurements)))


def model_mb(domain: Any, cliques: list[Clique]) -> float:
    """Of the tables of a junction tree."""
    sizes = tuple(domain.shape)
    tree = tree_of(sizes, [tuple(map(domain.attributes.index, clique)) for clique in cliques])
    return sum(float(np.prod([float(sizes[a]) for a in clique])) for clique in tree) * 8 / 2**20


def main() -> None:
    question = dict(np.load(sys.argv[1]))
    codes, sizes = question["codes"], tuple(question["sizes"].tolist())
    names = [f"a{index:02d}" for index in range(len(sizes))]
    random = np.random.default_rng(int(question["seed"]))
    np.random.seed(int(question["seed"]))  # noqa: NPY002 - what theirs selects by
    fits = Fits()
    aim.estimation = fits
    aim.hypothetical_model_size = model_mb
    aim.gaussian_noise = lambda sigma, size: random.normal(0.0, sigma, size)
    made = aim.AIMSynthesizer(max_model_size=float(question["model_mb"]))
    made.rho = aim.cdp_rho(float(question["epsilon"]), float(question["delta"]))
    workload = list(itertools.combinations(names, 2))
    made.AIM(mbi.Dataset(codes, mbi.Domain(names, sizes)), workload)
    model = fits.last
    assert model is not None
    answer: dict[str, Any] = {
        "pairs": np.concatenate(
            [model.marginal(pair).ravel() for pair in itertools.combinations(range(len(sizes)), 2)]
        ),
        "rounds": fits.rounds,
    }
    if question["rows"]:
        answer["synthetic"] = model.rows(int(question["rows"]), random)
    np.savez(sys.argv[2], **answer)


if __name__ == "__main__":
    main()
