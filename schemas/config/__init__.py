"""The configuration: one TOML file as frozen models. Every refusal names the key, the reason and the fix.

Start at `load_config`. Models are named after the sections, attributes after the keys:
`config.streams[0].privacy.epsilon` is `epsilon` in `[streams.privacy]` of the first stream.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schemas.config.discovery import ENGINES
    from schemas.config.domain.box import BoxDomainSection, PlanarDomainSection
    from schemas.config.domain.common import DomainSection
    from schemas.config.domain.geojson import GeoJsonDomainSection
    from schemas.config.domain.zones import ZonesDomainSection
    from schemas.config.engines import EngineFacts, EngineSpec
    from schemas.config.load import Config, config_from_mapping, load_config, parse_config, with_overrides
    from schemas.config.options.common import OptionsSection
    from schemas.config.options.spatial import SpatialOptions
    from schemas.config.privacy import Privacy
    from schemas.config.server import JobSection, Kafka
    from schemas.config.stream import Stream
    from schemas.config.timing import Timing
    from schemas.config.values import format_duration, format_length, microseconds, parse_duration
    from schemas.errors import ConfigError, ConfigProblem

# Loaded when they are asked for: the spec of an engine imports modules of this package while others of them, which look
# for all engines, have not been loaded yet.
_MODULES = {
    "ENGINES": "schemas.config.discovery",
    "BoxDomainSection": "schemas.config.domain.box",
    "PlanarDomainSection": "schemas.config.domain.box",
    "DomainSection": "schemas.config.domain.common",
    "GeoJsonDomainSection": "schemas.config.domain.geojson",
    "ZonesDomainSection": "schemas.config.domain.zones",
    "EngineFacts": "schemas.config.engines",
    "EngineSpec": "schemas.config.engines",
    "config_from_mapping": "schemas.config.load",
    "load_config": "schemas.config.load",
    "parse_config": "schemas.config.load",
    "with_overrides": "schemas.config.load",
    "OptionsSection": "schemas.config.options.common",
    "SpatialOptions": "schemas.config.options.spatial",
    "Privacy": "schemas.config.privacy",
    "Config": "schemas.config.load",
    "JobSection": "schemas.config.server",
    "Kafka": "schemas.config.server",
    "Stream": "schemas.config.stream",
    "Timing": "schemas.config.timing",
    "format_duration": "schemas.config.values",
    "format_length": "schemas.config.values",
    "microseconds": "schemas.config.values",
    "parse_duration": "schemas.config.values",
    "ConfigError": "schemas.errors",
    "ConfigProblem": "schemas.errors",
}


def __getattr__(name: str) -> Any:
    try:
        module = import_module(_MODULES[name])
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(module, name)


__all__ = [
    "ENGINES",
    "BoxDomainSection",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "DomainSection",
    "EngineFacts",
    "EngineSpec",
    "GeoJsonDomainSection",
    "JobSection",
    "Kafka",
    "OptionsSection",
    "PlanarDomainSection",
    "Privacy",
    "SpatialOptions",
    "Stream",
    "Timing",
    "ZonesDomainSection",
    "config_from_mapping",
    "format_duration",
    "format_length",
    "load_config",
    "microseconds",
    "parse_config",
    "parse_duration",
    "with_overrides",
]
