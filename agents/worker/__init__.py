"""One worker process: a Faust application with a task for each role and partition.

Shells are thin: what is decided is decided in `agents.protocol`.
"""
