"""The engines of this distribution: an `EngineSpec` each, named by an entry point in pyproject.toml.

Nothing heavy is imported here: a spec is loaded wherever a configuration is read.
"""
