"""Counts of regions from measured cells."""
