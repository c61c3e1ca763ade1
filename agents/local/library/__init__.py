"""The library: engines without Kafka, for notebooks. `from engines import configure` is its entry point."""
