"""Workers are killed, put to sleep and cut off from the broker at any time, in one run; the promise is kept.

It runs at night, with the long form, `make chaos FAULTS=network`, which has faults of the broker too: the suite has the
same faults of the network in tests/simulation, and the proxy in `test_proxy.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.chaos import Chaos, settled
from tests.crash.field import Field
from tests.crash.proxy.faults import Seeded, no_faults
from tests.crash.proxy.server import Proxy
from tests.kafka.support import until

pytestmark = [pytest.mark.kafka, pytest.mark.nightly, pytest.mark.seconds(40)]

KILLS, FAULTS, SEED = 4, 8, 5


def test_killed_at_any_time_on_a_bad_network(bootstrap: str, tmp_path: Path) -> None:
    async def play() -> None:
        plan = Seeded(SEED, most=FAULTS, apart=(5, 30))
        async with Proxy(bootstrap, plan=plan) as proxy:
            field = Field(bootstrap, tmp_path, seed=SEED, workers_bootstrap=proxy.bootstrap)
            try:
                await field.open()
                chaos = Chaos(field, random.Random(SEED), most=KILLS)

                def enough() -> bool:
                    chaos.turn()
                    return chaos.kills >= KILLS and plan.faults == FAULTS

                await until(enough, timeout_s=400)
                proxy.plan = no_faults
                assert await settled(field, chaos) == 0, "stuck until it was killed"
                verdict = await field.verdict()
                assert verdict.kept, f"{verdict}\n" + "\n".join(verdict.notes[:20])
                assert verdict.steps == 2 * field.steps
                assert len(Counter(name for name, _ in plan.done)) > 2  # of many kinds of requests
            except BaseException:
                print(plan.done, field.logs())
                raise
            finally:
                await field.close()

    asyncio.run(play())
