"""The configuration's JSON Schema, for editors that complete and check TOML."""

from __future__ import annotations

from typing import Any

from schemas.config.root import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the file. It knows keys, types and ranges; `load_config` knows the rest."""
    return {"$schema": DIALECT, **Config.model_json_schema(mode="validation"), "title": "privstream configuration"}
