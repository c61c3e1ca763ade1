"""Rows of files: read, held against what a stream reads, and what becomes of them."""
