"""Width: what the job takes with many partitions, streams, users and events, on real workers and a real Kafka.

    make bench-scale                        about 40 minutes on two quiet cores
    python -m benchmarks.scale --quick      two to three minutes; figures of fewer events
    python -m benchmarks.scale --only crash
    python -m benchmarks.scale --project    what the last figures come to at 10^6 events a second, without a run

Four parts, each case with a broker of its own: *latency* from the public end of a step to its release as a reader of
the public topics sees it, for 1 and 2 workers, 1 to 64 partitions and 1 to 200 streams of all engines; a *replay* of
10^7 events, in which step time and memory must stay flat; a *crash* with 10^7 users in the bounds; and *backpressure*,
an engine slower than its producer. Producer, broker and workers share the machine.
"""
