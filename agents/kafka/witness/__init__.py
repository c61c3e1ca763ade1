"""A job's witness: where the last answered step of each stream is noted outside of the cluster."""
