"""The configuration's JSON Schema, for editors that complete and check TOML."""

from __future__ import annotations

from typing import Any

from schemas.config.root import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the file. It knows keys, types and ranges; `load_config` knows the rest."""
    schema = Config.model_json_schema(mode="validation")
    # `Stream` fills absent options in by itself, so they may be absent from the file.
    stream = schema["$defs"]["Stream"]
    stream["required"] = [key for key in stream["required"] if key != "options"]
    for key in ("domain", "options"):
        # A table that names few keys can fit the models of several engines.
        one = stream["properties"][key]
        if "oneOf" in one:
            one["anyOf"] = one.pop("oneOf")
    return {"$schema": DIALECT, **schema, "title": "privstream configuration"}
