"""The configuration: one TOML file, read into frozen models. Every refusal names the key, the reason and the fix.

`load_config` is the entry point. Models are named after sections, and attributes after keys:
`config.streams[0].privacy.epsilon` is `epsilon` in `[streams.privacy]` of the first stream.
"""

from __future__ import annotations

from schemas.config.engines.discovery import ENGINES
from schemas.config.load import Config, config_from_mapping, load_config, parse_config, with_overrides
from schemas.config.server import Kafka
from schemas.config.stream import Stream
from schemas.config.values import format_duration, format_length
from schemas.errors import ConfigError

__all__ = [
    "ENGINES",
    "Config",
    "ConfigError",
    "Kafka",
    "Stream",
    "config_from_mapping",
    "format_duration",
    "format_length",
    "load_config",
    "parse_config",
    "with_overrides",
]
