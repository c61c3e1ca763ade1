"""Any configuration on this machine, at once: a broker of its own, topics, a worker, a file, the live page."""
