"""What needs no worker: a stream simulated over a file, and a file replayed into a topic."""
