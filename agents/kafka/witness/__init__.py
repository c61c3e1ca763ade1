"""Where the last answered step of each stream is noted outside of the cluster, and who asks it."""
