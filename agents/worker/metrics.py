"""What a worker shows of itself: Prometheus names and units by its conventions.

Operator only. Each help text says what is PRIVATE, a count of private records or what follows from one, such as the
time of computing (docs/guarantee.md, section 8), and what is public, as anybody who reads the public topics knows it.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.kafka.lifecycle.vitals import Vitals
from agents.protocol.clock import StepClock
from schemas.config import Stream
from schemas.ledger import LedgerEntry

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)

STATE_BYTES = Gauge("privstream_state_bytes", "PRIVATE. Size of a stream's stored state", ["stream"])
PHASES = Histogram(
    "privstream_release_phase_seconds",
    "PRIVATE. Duration of the phases of a release: seed, compute, candidate, publish",
    ["stream", "phase"], buckets=SECONDS,
)  # fmt: skip
DELAY = Histogram(
    "privstream_release_delay_seconds",
    "PRIVATE: it holds the time of computing. From the public time of a step (end, grace and publish_delay) to its "
    "release; not of replays",
    ["stream"], buckets=SECONDS,
)  # fmt: skip
PUBLISHED = Counter("privstream_published_steps", "Public. Steps made public by this worker", ["stream"])
LATE = Counter(
    "privstream_late_publications",
    "PRIVATE: it holds the time of computing. Steps made public more than a second late",
    ["stream"],
)
STEP = Gauge("privstream_public_step", "Public. The last public step", ["stream"])
STEP_END = Gauge("privstream_public_step_end_timestamp_seconds", "Public. When the last public step ended", ["stream"])
SPENT = Gauge("privstream_epsilon_spent", "Public. Epsilon of a unit that is spent", ["stream"])
EPSILON = Gauge("privstream_epsilon", "Public. Epsilon of a unit, in all", ["stream"])
HORIZON = Gauge("privstream_horizon_steps_left", "Public. Steps until the configured horizon", ["stream"])
REBALANCES = Counter("privstream_rebalances", "Public. Times that this worker lost its partitions", ["group"])
FENCES = Counter("privstream_fences", "Public. Producers that this worker fenced, itself the next one", ["role"])
RESTARTS = Counter("privstream_restarts", "Public. Times that this process has begun anew")

STATES = ("starting", "ready", "dead")


class WorkerState(Collector):
    """Shows what the probes answer, as a state set, and how far reading is behind."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals

    def collect(self) -> Iterable[Metric]:
        now = "dead" if self._vitals.dead else "starting" if self._vitals.unready else "ready"
        found = GaugeMetricFamily("privstream_worker_state", "Public. 1 for what this worker is", labels=["state"])
        for state in STATES:
            found.add_metric([state], float(state == now))
        yield found
        lag = GaugeMetricFamily(
            "privstream_lag_offsets",
            "PRIVATE. Offsets of a partition that are not read yet, markers included",
            labels=["topic", "partition"],
        )
        for places in list(self._vitals.lags.values()):
            for (topic, partition), place in places.items():
                lag.add_metric([topic, str(partition)], max(place.end - place.position, 0))
        yield lag


def show_public(stream: Stream, step: int, clock: StepClock, ledger: bytes) -> None:
    """Show how far a stream has come and what that has cost, from the public ledger entry of its last step."""
    entry = LedgerEntry.decode(ledger, stream.name)
    STEP.labels(stream.name).set(step)
    STEP_END.labels(stream.name).set(clock.end_of(step) / 1e6)
    SPENT.labels(stream.name).set(entry.epsilon_spent)
    EPSILON.labels(stream.name).set(entry.epsilon)
    if (horizon := stream.horizon) is not None:
        HORIZON.labels(stream.name).set(max(horizon - 1 - step, 0))
