"""Benchmarks: one command each, progress while they run, a table, and one line of JSON last."""
