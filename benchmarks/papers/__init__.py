"""Methods that the engines are compared with, one file for an engine; they run in benchmarks only."""
