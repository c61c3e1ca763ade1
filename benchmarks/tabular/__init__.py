"""Error, speed and use of tabular streams: `make bench-tabular`, see `benchmarks.tabular.__main__`."""
