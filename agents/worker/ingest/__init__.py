"""The ingest's shell: raw topics in, blocks out, one fenced producer for each source partition."""
