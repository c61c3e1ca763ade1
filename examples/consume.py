"""Read a public topic like any consumer: `python examples/consume.py BOOTSTRAP [TOPIC]`. Knows nothing of privstream.

Prints each record's key (the synthetic id) and its JSON; a record without a value withdraws the id.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError


async def consume(bootstrap: str, topic: str) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    try:
        await consumer.start()
        # Asked first: a consumer waits for a topic that is not there, for ever and without a word.
        if topic not in (there := await consumer.topics()):
            near = "".join(f"\n  {name}" for name in difflib.get_close_matches(topic, there, n=5, cutoff=0))
            sys.exit(f"There is no topic {topic}, or this client may not see it. Nearest of those that it sees:{near}")
        consumer.subscribe([topic])
        async for record in consumer:
            value = record.value.decode() if record.value else "(withdrawn)"
            sys.stdout.write(f"{(record.key or b'-').decode()} {value}\n")
            sys.stdout.flush()  # to a pipe, too, as soon as it is there
    except KafkaConnectionError as error:
        sys.exit(str(error))
    finally:
        await consumer.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(consume(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "taxi.synthetic"))
