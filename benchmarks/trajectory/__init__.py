"""The trajectory engine's modes on trips that we have: `make bench-trajectory`. See `__main__`."""
