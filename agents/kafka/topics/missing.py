"""A consumer asks again for a topic that its broker does not know of yet.

A broker answers from what it has heard, which may be a moment old: of a topic made just now it says that there is none.
aiokafka's consumer then joins its group with no partition of that topic, and asks again when its metadata expire: in
five minutes, in which nobody reads. (When it learns of the partitions it joins again by itself.)
"""

from __future__ import annotations

import asyncio
from typing import Any

FIRST_S, LONGEST_S = 0.5, 30.0
"""Between questions: a topic that is gone for good is asked for as long as the consumer lives."""


def ask_for_missing_topics(consumer: Any) -> None:
    """For a started consumer, in its own event loop."""
    client, loop = consumer._client, asyncio.get_running_loop()
    delay_s = FIRST_S
    question: asyncio.TimerHandle | None = None

    def look(cluster: Any) -> None:
        nonlocal delay_s, question
        if question is not None:
            question.cancel()
            question = None
        if all(cluster.partitions_for_topic(topic) for topic in client._topics):
            delay_s = FIRST_S
            return
        question = loop.call_later(delay_s, client.force_metadata_update)
        delay_s = min(2 * delay_s, LONGEST_S)

    client.cluster.add_listener(look)
