"""Which engines there are: the entry points of group `privstream.engines` of all installed distributions.

    [project.entry-points."privstream.engines"]
    spatial = "engines.specs.spatial:SPEC"

Guarantee: the engines are in order of name, so that nothing depends on what was installed first.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any, TypeVar

from schemas.config.domain import DomainSection
from schemas.config.engines import EngineSpec
from schemas.config.options import OptionsSection, TripOptionsSection
from schemas.errors import PrivstreamError

GROUP = "privstream.engines"
T = TypeVar("T")


def specs_of(entries: Iterable[EntryPoint]) -> Mapping[str, EngineSpec]:
    """The engines that these entry points name, by name.

    Raises: PrivstreamError if two are of one name or give one kind of domain two models, if one cannot be loaded or is
        no `EngineSpec` of the entry point's name; it names the distributions. Or if there is none at all.
    """
    found: dict[str, tuple[EngineSpec, str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        source = _source(entry)
        if entry.name in found:
            raise PrivstreamError(
                f'engine "{entry.name}" is there twice, from {found[entry.name][1]} and from {source}. '
                "Fix: uninstall one of the distributions."
            )
        found[entry.name] = (_loaded(entry, source), source)
    if not found:
        raise PrivstreamError(
            f"no engine is installed: no distribution has an entry point of group {GROUP}. "
            "Fix: install privstream (again), by make setup in a checkout or by pip install."
        )
    _refuse_two_models(found)
    return MappingProxyType({name: spec for name, (spec, _) in found.items()})


def _source(entry: EntryPoint) -> str:
    dist = entry.dist
    return "an unknown distribution" if dist is None else f"distribution {dist.name} {dist.version}"


def _loaded(entry: EntryPoint, source: str) -> EngineSpec:
    try:
        spec: Any = entry.load()
    except Exception as error:
        raise PrivstreamError(
            f'engine "{entry.name}" of {source} cannot be loaded: {entry.value}: {type(error).__name__}: {error}. '
            "Fix: reinstall the distribution, or uninstall it."
        ) from error
    fault = _fault(spec, entry.name)
    if fault:
        raise PrivstreamError(
            f'engine "{entry.name}" of {source}: {entry.value} {fault}. Fix: uninstall the distribution, or correct it.'
        )
    made: EngineSpec = spec
    return made


def _fault(spec: Any, name: str) -> str:
    """Say what is wrong with what an entry point gave; empty if nothing is."""
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
        return "has a domain of trips, and options that are no TripOptionsSection: how long do a trip's records pass?"
    if spec.facts.modes[:1] != ("default",):
        return 'has modes that do not begin with "default"'
    return ""


def _refuse_two_models(found: Mapping[str, tuple[EngineSpec, str]]) -> None:
    """A kind of domain means one thing, whatever the engine."""
    first: dict[str, tuple[type[DomainSection], str, str]] = {}
    for name, (spec, source) in found.items():
        for kind, model in spec.domains.items():
            given, other, whose = first.setdefault(kind, (model, name, source))
            if given is not model:
                raise PrivstreamError(
                    f'engines "{other}" of {whose} and "{name}" of {source} mean different things by a domain of kind '
                    f'"{kind}". Fix: uninstall one of the distributions.'
                )


def _domains() -> Mapping[str, type[DomainSection]]:
    models = {kind: model for spec in ENGINES.values() for kind, model in spec.domains.items()}
    return {kind: models[kind] for kind in sorted(models)}


class Installed(Mapping[str, T]):
    """What is installed, looked for when somebody first asks: specs of engines import sections of the configuration."""

    def __init__(self, find: Callable[[], Mapping[str, T]]) -> None:
        self._found = cache(find)

    def __getitem__(self, name: str) -> T:
        return self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())


ENGINES = Installed(lambda: specs_of(importlib.metadata.entry_points(group=GROUP)))
"""Every installed engine by its name."""
DOMAINS = Installed(_domains)
"""Every kind of domain that some engine works on, with its model."""


def measures_expiry(engine: str, mode: str) -> bool:
    """Return whether a `ttl` expiry is measured as a delete, so that an insert costs its user two contributions."""
    return engine in ENGINES and mode in ENGINES[engine].facts.measured_expiry
