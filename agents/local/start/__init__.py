"""The first hour: a configuration for events that nobody has described yet."""
