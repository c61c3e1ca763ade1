"""Sans-IO state machines: records in, records and effects out. No Kafka, no clock, no file."""
