"""`[streams.options]`: each engine's own options, a model and a file for each engine."""
