"""Ingest, events a second, as ratios in one run on the embedded broker: `python -m benchmarks.ingest [--quick]`.

Programs read the same four partitions of JSON events of about 80 bytes, in turns, each in a fresh process:
1. bare: aiokafka's `getmany` and `orjson.loads`, nothing else: what a Python consumer can do at most;
2. faust: `async for event in stream`, what a Faust agent would do;
3. quix, bytewax: a count of events by user in windows of six hours, as their documentation shows it, in an environment
   of their own (`.venv-streams`); state, changelog and commits as they come;
4. ours: the product's `IngestService`, from raw bytes to committed blocks, with contribution bounds on.

A round runs all, so that a busy machine slows all; a ratio is that of one round, the reported one their median. Then
ours and bare by codec, one process against two of one consumer group, and the bounds filled with many users.
"""
