"""Milliseconds of one spatial engine step, with little and much history: `make bench-step`.

Steps of 2,000 events after 10^5 to 10^8, what they are spent on, the same step in plain Python (`twin`), and a step of
10^5 events. Engines of all histories take turns in one run, so that a busy machine slows all of them. A step is timed
from the folded events to the last synthetic record as a Python object. Events are clustered as in a city (40 Gaussian
spots), depth 18, event epsilon 1/2. 120 steps come first: after a first release of 10^8 events at once counts take that
long to settle, and three times as many points move.

`--small` (ARGS=--small) measures another thing: the processor time of one small step of every engine, all the way from
events to public records, since that is what a worker with many streams does most. It is counted by the process, so that
a busy machine changes it less. `--big` measures the same of 10^6 events of one big stream, stage by stage, from batches
that a broker sends to batches that it is sent.

`--forms` (ARGS=--forms) measures two steps of 10^6 events, from events to the batches that a producer sends: where each
event is a record, and where records have weights (`[streams.records]`). By the process, both forms in turns.
"""
