"""What travels and what is configured: records, wire formats, topics, the configuration, the guarantee as data."""
