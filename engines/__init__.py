"""The privacy of privstream: pure functions and small classes, without Kafka, clock, file or global state."""
