"""Error of the sequence engines on the papers' experiments and on real series: `make bench-sequence`."""
