"""Synthetic points in the plane: `held` is mode `default`, `papers` is mode `paper`."""
