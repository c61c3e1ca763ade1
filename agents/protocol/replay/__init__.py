"""What a replay of a file writes, and in which order."""
