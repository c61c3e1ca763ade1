"""What needs no worker: a stream simulated over a file, a file replayed into a topic, a stream put to the audit."""
