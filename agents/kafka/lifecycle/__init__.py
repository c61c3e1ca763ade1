"""A worker's life: what stops a stream or a worker, what is said of it, how it waits, and how it leaves."""
