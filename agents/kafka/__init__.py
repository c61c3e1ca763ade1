"""The cluster, as this job talks to it: clients, topics, identities, and what an answer means."""
