"""Discovery of engines: the entry points of group `privstream.engines` of all installed distributions.

    [project.entry-points."privstream.engines"]
    spatial = "engines.specs.spatial:SPEC"

Guarantee: engines are sorted by name, so that nothing depends on the order of installation.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any, TypeVar

from schemas.config.domain import DomainSection
from schemas.config.engines.options import OptionsSection, TripOptionsSection
from schemas.config.engines.spec import EngineSpec
from schemas.errors import PrivstreamError

GROUP = "privstream.engines"
T = TypeVar("T")


def load_specs(entries: Iterable[EntryPoint]) -> Mapping[str, EngineSpec]:
    """Return the specs of the engines that these entry points name, by the name of the engine.

    Raises: PrivstreamError, which names the distributions: if there is no entry point; if two engines have one name, or
        different models for one kind of domain; if one cannot be loaded, or is not an `EngineSpec` of its name.
    """
    specs: dict[str, tuple[EngineSpec, str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        source = _source(entry)
        if entry.name in specs:
            raise PrivstreamError(
                f'engine "{entry.name}" is installed twice, from {specs[entry.name][1]} and from {source}. '
                "Fix: uninstall one of the distributions."
            )
        specs[entry.name] = (_load(entry, source), source)
    if not specs:
        raise PrivstreamError(
            f"no engine is installed: no distribution has an entry point of group {GROUP}. "
            "Fix: install privstream (again), by make setup in a checkout or by pip install."
        )
    _check_kinds(specs)
    return MappingProxyType({name: spec for name, (spec, _) in specs.items()})


def _source(entry: EntryPoint) -> str:
    dist = entry.dist
    return "an unknown distribution" if dist is None else f"distribution {dist.name} {dist.version}"


def _load(entry: EntryPoint, source: str) -> EngineSpec:
    try:
        loaded: Any = entry.load()
    except Exception as error:
        raise PrivstreamError(
            f'engine "{entry.name}" of {source} cannot be loaded: {entry.value}: {type(error).__name__}: {error}. '
            "Fix: reinstall the distribution, or uninstall it."
        ) from error
    if fault := _fault(loaded, entry.name):
        raise PrivstreamError(
            f'engine "{entry.name}" of {source}: {entry.value} {fault}. Fix: uninstall the distribution, or correct it.'
        )
    spec: EngineSpec = loaded
    return spec


def _fault(spec: Any, name: str) -> str:
    """Return what is wrong with the object of an entry point; empty if nothing is."""
    if not isinstance(spec, EngineSpec):
        return f"is a {type(spec).__name__} and no EngineSpec"
    domains: list[Any] = list(spec.domains.values())
    options: Any = spec.options
    if spec.name != name:
        return f'calls itself "{spec.name}"'
    if not domains or not all(issubclass(model, DomainSection) for model in domains):
        return "has no domain, or one that is no DomainSection"
    if not issubclass(options, OptionsSection):
        return "has options that are no OptionsSection"
    if any(model.trip_field is not DomainSection.trip_field for model in domains) and not issubclass(
        options, TripOptionsSection
    ):
        return "has a domain of trips, but options that are no TripOptionsSection, which says how long a trip can last"
    if spec.facts.modes[:1] != ("default",):
        return 'has modes that do not begin with "default"'
    return ""


def _check_kinds(specs: Mapping[str, tuple[EngineSpec, str]]) -> None:
    """Refuse engines with different models for one kind of domain."""
    first: dict[str, tuple[type[DomainSection], str, str]] = {}
    for name, (spec, source) in specs.items():
        for kind, model in spec.domains.items():
            first_model, first_name, first_source = first.setdefault(kind, (model, name, source))
            if first_model is not model:
                raise PrivstreamError(
                    f'engines "{first_name}" of {first_source} and "{name}" of {source} have different models for '
                    f'domains of kind "{kind}". Fix: uninstall one of the distributions.'
                )


def _domains() -> Mapping[str, type[DomainSection]]:
    models = {kind: model for spec in ENGINES.values() for kind, model in spec.domains.items()}
    return {kind: models[kind] for kind in sorted(models)}


class LazyMapping(Mapping[str, T]):
    """A mapping that is computed at the first access, because the specs of engines import this package."""

    def __init__(self, compute: Callable[[], Mapping[str, T]]) -> None:
        self._mapping = cache(compute)

    def __getitem__(self, name: str) -> T:
        return self._mapping()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping())

    def __len__(self) -> int:
        return len(self._mapping())


ENGINES = LazyMapping(lambda: load_specs(importlib.metadata.entry_points(group=GROUP)))
"""Every installed engine, by its name."""
DOMAINS = LazyMapping(_domains)
"""The model of every kind of domain of the installed engines."""


def measures_expiry(engine: str, mode: str) -> bool:
    """Return whether a `ttl` expiry is measured as a delete, so that an insert costs its user two contributions."""
    return engine in ENGINES and mode in ENGINES[engine].facts.measured_expiry
