"""What a configured witness says, for `status` and `doctor`. Asks, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.kafka.witness.places import store_of
from agents.kafka.witness.store import within
from agents.protocol.release.witness import Mark
from schemas.errors import ConfigError, WitnessAwayError, WitnessError

if TYPE_CHECKING:
    from schemas.config import Config

UNCONFIGURED = (
    "each worker notes in its own data_dir what was answered, and a cluster that is put back to an earlier moment is "
    'noticed by those that have kept it, and by no other (docs/operations.md, "The witness")'
)


async def witness_state(config: Config, stream: str, published: int) -> str | None:
    """In a line, for a stream whose public ledger ends at step `published`; None where no witness is configured."""
    if config.job.witness is None:
        return None
    try:
        store = store_of(config.job)
        data = (await within(store.read(stream), store.place)).data
        mark = None if data is None else Mark.decode(data, stream=stream, place=store.place)
    except (ConfigError, WitnessAwayError, WitnessError) as error:
        return str(error)
    if mark is None:
        return "has never seen this stream" if published >= 0 else "waits for the first step"
    since = "" if mark.since < 0 else f", since step {mark.since + 1}: what was before is taken on the ledger's word"
    if mark.step < published:
        return f"ENDS AT STEP {mark.step}, before the public ledger{since}"
    return f"step {mark.step}{since}"
