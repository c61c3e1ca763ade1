"""Held leaf counters, mode `default`: see `engine`."""
