"""Differentially private synthetic trips, one release for each window of trips that closed."""
