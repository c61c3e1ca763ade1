"""Filters and smoothers of the collective, for a chain that is known."""
