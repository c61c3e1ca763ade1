"""What a configuration must know of each engine. `schemas` never imports one; a test compares the two tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.guarantee import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Attributes:

    modes: names that `mode` may have, `default` first.
    kinds: of domains that it works on.
    units: of privacy that it can promise.
    uses_delta: modes that promise (epsilon, delta); the others refuse a delta.
    needs_delta: of those, the ones that have no promise without.
    whole_unit: True where the engine itself accounts for all that one unit may contribute, because several
        contributions are not simply several times one: it then runs at the unit's epsilon and delta.
    measured_expiry: modes in which a `ttl` expiry is measured as a delete; elsewhere it is post-processing and free.
    not_private: modes that measure an event at every step again, so that epsilon is the price of ONE step and nothing
        bounds the stream; they run where `options.allow_not_private` says so.
    noise_versions: mode -> version of the noise's law, where it is no longer the first one; in the fingerprint, so that
        a stream which was started with another law does not silently go on with this one.
    """

    modes: tuple[str, ...]
    kinds: tuple[str, ...]
    units: tuple[Unit, ...] = ("user", "event")
    uses_delta: frozenset[str] = frozenset()
    needs_delta: frozenset[str] = frozenset()
    whole_unit: bool = False
    measured_expiry: frozenset[str] = frozenset()
    not_private: frozenset[str] = frozenset()
    noise_versions: Mapping[str, int] = field(default_factory=dict)


ENGINE_FACTS: Mapping[str, EngineFacts] = {
    "spatial": EngineFacts(
        modes=("default", "paper", "fixed-tree", "offline-increments", "offline"),
        kinds=("box", "geojson", "zones"),
        measured_expiry=frozenset({"paper", "fixed-tree", "offline-increments"}),
        not_private=frozenset({"offline"}),
        # 2: a smaller lambda of PrivTree.
        noise_versions=dict.fromkeys(("paper", "fixed-tree", "offline-increments", "offline"), 2),
    ),
    "markov": EngineFacts(
        modes=("default", "kalman", "paper", "mle", "prior", "raw"), kinds=("states",), units=("replace",)
    ),
    "series": EngineFacts(
        modes=(
            "default",
            "kalman",
            "paper",
            "paper-binomial",
            "gaussian",
            "laplace",
            "fast",
            "dft",
            "bd",
            "ba",
            "tree",
        ),
        kinds=("series",),
        uses_delta=frozenset({"default", "kalman", "paper", "paper-binomial", "gaussian"}),
        needs_delta=frozenset({"default", "kalman", "paper", "paper-binomial", "gaussian"}),
        whole_unit=True,
        # 2: every arrangement of a user's events over steps is accounted for.
        noise_versions={"paper-binomial": 2},
    ),
    "tabular": EngineFacts(
        modes=("default", "paper", "streaming-mwem"),
        kinds=("table",),
        measured_expiry=frozenset({"paper", "streaming-mwem"}),
    ),
    # Contributions are trips: without a user whose they are, nobody tells whether two records are of one trip.
    # 2: a smaller lambda of PrivTree.
    "trajectory": EngineFacts(
        modes=("default", "paper", "grid"), kinds=("trips",), units=("user",), noise_versions={"paper": 2}
    ),
}
ENGINE_NAMES = tuple(ENGINE_FACTS)
PLANNED_ENGINES = tuple(name for name in ("tabular", "series", "markov", "trajectory") if name not in ENGINE_FACTS)
ENGINE_MODES: Mapping[str, tuple[str, ...]] = {name: facts.modes for name, facts in ENGINE_FACTS.items()}


def measures_expiry(engine: str, mode: str) -> bool:
    """True where a `ttl` expiry is measured as a delete, so that an insert costs its user two contributions."""
    return engine in ENGINE_FACTS and mode in ENGINE_FACTS[engine].measured_expiry
