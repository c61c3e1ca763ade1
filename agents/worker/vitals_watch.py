"""Keeps the pulse of the event loop, and looks whether what waits in Kafka is read.

A client can lose its way to a partition and say nothing: the worker then looks idle while records wait. So each look
asks the brokers how far every assigned partition goes and holds it against the place where reading is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.errors import KafkaError
from mode import Service

from agents.kafka.lifecycle.cancellations import LongService
from agents.kafka.lifecycle.reading import READ_S, Reach, Reading
from agents.kafka.lifecycle.vitals import BEAT_S, Vitals
from schemas.topics import TopicAndPartition

LOOK_S = 10.0


class VitalsWatch(LongService):
    """A Faust service."""

    def __init__(self, app: Any, vitals: Vitals, roles: Mapping[str, str], **service_settings: Any) -> None:
        super().__init__(**service_settings)
        self._app = app
        self._vitals = vitals
        self._roles = roles
        self._reading = Reading()

    @Service.task
    async def _beat(self) -> None:
        while not self.should_stop:
            self._vitals.beat()
            await self.sleep(BEAT_S)

    @Service.task
    async def _look(self) -> None:
        pulse = self._vitals.part("consumer of the private topics")
        pulse.ready = True
        while not self.should_stop:
            pulse.waits("until the next look")
            await self.sleep(LOOK_S)
            try:
                with pulse.at("is asked where it reads", READ_S):
                    places = await self._places()
            except (KafkaError, OSError, TimeoutError):
                continue  # a cluster that does not answer says nothing of what waits in it
            self._vitals.lags["private topics"] = places
            busy = self._busy()
            self._vitals.caught_up["private topics"] = self._reading.caught_up(places, busy)
            told = self._reading.look(places, busy)
            self._vitals.fault("consumer of the private topics", "; ".join(told) or None)

    async def _places(self) -> dict[TopicAndPartition, Reach]:
        consumer, topics = self._app.consumer, set(self._roles.values())
        tps = [tp for tp in consumer.assignment() if tp.topic in topics]
        ends = await consumer.highwaters(*tps) if tps else {}
        return {
            (tp.topic, tp.partition): Reach(position, end)
            for tp, end in ends.items()
            if (position := await consumer.position(tp)) is not None
        }

    def _busy(self) -> set[TopicAndPartition]:
        """Partitions whose task is at work, or not there."""
        idle = {pulse.name for pulse in self._vitals.parts if pulse.ready and pulse.limit_s is None}
        return {
            (tp.topic, tp.partition)
            for tp in self._app.consumer.assignment()
            for role, topic in self._roles.items()
            if topic == tp.topic and f"{role} of partition {tp.partition}" not in idle
        }


def watch_vitals(app: Any, vitals: Vitals, roles: Mapping[str, str]) -> None:
    """Add the service to an application. Args: roles: role -> topic whose partitions its tasks read."""

    class ConfiguredWatch(VitalsWatch):
        def __init__(self, **service_settings: Any) -> None:
            super().__init__(app, vitals, roles, **service_settings)

    app.service(ConfiguredWatch)
