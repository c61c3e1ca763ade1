"""The embedded broker: a real Apache Kafka on this machine, for the demo and the tests."""
