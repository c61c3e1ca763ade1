"""Pictures of a synthetic stream, put together from its public records alone: one kind a file."""
