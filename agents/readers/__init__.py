"""Readers of the job's topics: consumers of the synthetic stream, queries, the live page, and an operator's status."""
