"""The engines without Kafka: rows of a notebook in, one release for each step out. What `from engines import` gives."""
