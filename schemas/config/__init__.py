"""The configuration: one TOML file as frozen models. Every refusal names the key, the reason and the mend.

Start at `load_config`. Models are named after the sections, attributes after the keys:
`config.streams[0].privacy.epsilon` is `epsilon` in `[streams.privacy]` of the first stream.
"""

from schemas.config.domain import DOMAIN_KINDS, BoxDomain, DomainSection, GeoJsonDomain, PlanarDomain, ZonesDomain
from schemas.config.engines import ENGINE_FACTS, ENGINE_MODES, ENGINE_NAMES, EngineFacts
from schemas.config.export import config_json_schema
from schemas.config.load import config_from_mapping, load_config, parse_config, with_overrides
from schemas.config.options import OptionsSection, SpatialOptions
from schemas.config.privacy import Privacy
from schemas.config.root import Config
from schemas.config.server import Job, Kafka
from schemas.config.stream import Stream
from schemas.config.timing import Timing
from schemas.config.values import format_duration, microseconds, parse_duration
from schemas.errors import ConfigError, ConfigProblem

__all__ = [
    "DOMAIN_KINDS",
    "ENGINE_FACTS",
    "ENGINE_MODES",
    "ENGINE_NAMES",
    "BoxDomain",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "DomainSection",
    "EngineFacts",
    "GeoJsonDomain",
    "Job",
    "Kafka",
    "OptionsSection",
    "PlanarDomain",
    "Privacy",
    "SpatialOptions",
    "Stream",
    "Timing",
    "ZonesDomain",
    "config_from_mapping",
    "config_json_schema",
    "format_duration",
    "load_config",
    "microseconds",
    "parse_config",
    "parse_duration",
    "with_overrides",
]
