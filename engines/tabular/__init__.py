"""Tabular streams: private synthetic tables that follow the data, step by step."""
