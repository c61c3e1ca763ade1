"""What the contract tests and the coupled runs need of an engine: small streams, keys of events, what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

from engines.core.contract import Release
from engines.core.registry import part
from schemas.config import ENGINES, Stream

Key = tuple[int, ...]
Pick = Callable[[int, int], int]
"""Gives some whole number from the first to the second argument, both included: by Hypothesis, or by chance."""
T = TypeVar("T")


class Chance(Protocol):
    """What draws raw events: a `random.Random`, which no engine may make."""

    def random(self) -> float: ...
    def randint(self, low: int, high: int, /) -> int: ...
    def uniform(self, low: float, high: float, /) -> float: ...
    def choice(self, values: Sequence[T], /) -> T: ...


Variant = Mapping[str, Any]
"""Changes to the tables of a stream's configuration, and to keys beside them; None takes a key of a table out."""
Changed = Callable[[str, Variant], Variant]

WHOLE = 0.998
"""Share of a claim that is all of it: scales and lattices are rounded, towards less than the claim."""


def _unchanged(mode: str, variant: Variant) -> Variant:
    return variant


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCase:
    """Attributes:

    engine: its name.
    tables: `domain`, `options` and what else differs of a stream's configuration, by table.
    variants: changes to those tables, each tried in every mode that takes them; see `tried`.
    keys: from a `Pick` to the key of one event, `words` numbers. foreign: a key outside the domain, None where all are
        inside.
    event: from the `[streams.domain]` section and a `Chance` to the raw fields of one event.
    measured: noisy integers of a release by name, in which canaries look for a user; None: all numbers of its
        measurements, by their places.
    crowd: one event that is worth `crowded` of in a step for a release to measure something.
    dearest: from the domain's section and a `Chance` to the raw records of one contribution that costs most, of a trip
        all points and the record that ends it; None: any event does.
    reach: from a stream to the share of its claim that the dearest unit uses up: 1 but for rounding, or what the
        accounting leaves over there, and why.
    in_mode: from a mode and a variant to the variant as the mode takes it.
    longer: more variants, which are coupled only: of spans longer than a contract test.
    of_default: more variants that are coupled only, of mode `default` alone: what other modes refuse.
    drawn: more variants with keys that no type tells how to set; coupled are some of the streams that tests combine
        from all variants.
    wide: from a mode to variants with more cells, fields, contributions and charges than the constants of its code at
        which it takes another way; they are coupled in few steps with a crowd in one of them.
    """

    engine: str
    tables: Mapping[str, Any]
    keys: Callable[[Pick], Key]
    event: Callable[[Any, Chance], dict[str, Any]]
    crowd: Key
    foreign: Key | None
    wide: Callable[[str], Sequence[Variant]]
    words: int = 1
    measured: Callable[[Release], dict[str, int]] | None = None
    variants: Sequence[Variant] = field(default=({},))
    privacy: Mapping[str, Any] = field(default_factory=dict)
    dearest: Callable[[Any, Chance], Sequence[dict[str, Any]]] | None = None
    reach: Callable[[Stream], float] = lambda _: WHOLE
    in_mode: Changed = _unchanged
    longer: Sequence[Variant] = ()
    of_default: Sequence[Variant] = ()
    drawn: Sequence[Variant] = ()

    def dearest_of(self, domain: Any, chance: Chance) -> Sequence[dict[str, Any]]:
        """Return the raw records of one contribution that costs most."""
        return [self.event(domain, chance)] if self.dearest is None else self.dearest(domain, chance)

    def tried(self, mode: str) -> Sequence[Variant]:
        """Return all variants of a mode: those above, and what every engine that can is tried with."""
        return (*self.variants, *([{"privacy": {"surplus": 2}}] if self._counts_surplus(mode) else []))

    def coupled(self, mode: str) -> Sequence[Variant]:
        """Return all variants that are coupled in a mode: those of `tried` first."""
        more = {"privacy": {"surplus": 1, "max_contributions": 3, "per": "8h"}}
        gathered = {"privacy": {"surplus": 2}, "options": {"initial_steps": 8}}
        gathers = "initial_steps" in ENGINES[self.engine].options.model_fields
        counted = [more, gathered] if gathers else [more]
        own = self.of_default if mode == "default" else ()
        return (*self.tried(mode), *self.longer, *own, *(counted if self._counts_surplus(mode) else []))

    def coupled_wide(self, mode: str) -> Sequence[Variant]:
        """Return all wide variants of a mode: its own, and what every engine that can is tried with: a surplus under a
        cap, a delta for many contributions in periods.
        """
        facts, many = ENGINES[self.engine].facts, {"max_contributions": 12, "max_per_step": 5}
        surplus = {"privacy": {**many, "surplus": 3}}
        delta = {"privacy": {**many, "delta": 1e-5, "per": "4h"}}
        return (
            *self.wide(mode),
            *([surplus] if self._counts_surplus(mode) else []),
            *([delta] if mode in facts.uses_delta and mode not in facts.needs_delta else []),
        )

    def _counts_surplus(self, mode: str) -> bool:
        return mode in ENGINES[self.engine].facts.counts_surplus

    def stream(self, mode: str, variant: Variant | None = None) -> Stream:
        """Return a stream of this engine, with the changes of a variant."""
        return Stream.model_validate(self.document(mode, variant))

    def document(self, mode: str, variant: Variant | None = None) -> dict[str, Any]:
        """Return the tables of that stream, as a file would have them."""
        privacy = {"epsilon": 2.0, "unit": "user", "user": "u", "max_contributions": 2}
        document: dict[str, Any] = {
            "name": "s",
            "engine": self.engine,
            "mode": mode,
            "source": "raw.s",
            "privacy": {**privacy, **self.privacy},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            **self.tables,
        }
        for table, changes in self.in_mode(mode, variant or {}).items():
            if not isinstance(changes, Mapping):  # a key of the stream itself
                document[table] = changes
                continue
            both = {**document.get(table, {}), **changes}
            document[table] = {key: value for key, value in both.items() if value is not None}
        # Each mode has its own of the options that a case or a variant names.
        unused = ENGINES[self.engine].options.without_effect(mode)
        document["options"] = {name: value for name, value in document.get("options", {}).items() if name not in unused}
        if mode not in ENGINES[self.engine].facts.uses_delta:
            # A variant with a delta is another one in modes that have no use for it.
            document["privacy"].pop("delta", None)
        return document


@cache  # inputs ask it for every event
def contract_case(engine: str) -> EngineCase:
    """Return the case of an installed engine. Raises: PrivstreamError if it has none."""
    case: EngineCase = part(engine, "contract_case")
    return case
