"""A worker's machine fails it: the disk is full, the wall clock steps. The promise is kept, and the job goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.field import ROOT, Field
from tests.crash.machine import Clock, Disk, can_mount
from tests.crash.test_crash import run
from tests.kafka.support import until
from tests.missing import missing

SHOW = """
import sys, time
from pathlib import Path
from tests.crash.machine import follow_clock
true, still = time.time, time.monotonic
follow_clock(Path(sys.argv[1]))
for line in sys.stdin:
    print(round(time.time() - true()), round(time.time_ns() / 1e9 - true()), time.monotonic is still, flush=True)
"""


def test_a_clock_steps_in_a_running_process(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    seen = []
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, str(clock.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead_s in (0, 86_400, -900):
            clock.set(ahead_s)
            process.stdin.write("now\n")
            process.stdin.flush()
            seen.append(process.stdout.readline().split())
    assert seen == [["0", "0", "True"], ["86400", "86400", "True"], ["-900", "-900", "True"]]


@pytest.mark.kafka
@pytest.mark.slow
def test_a_full_disk_and_a_clock_that_steps(bootstrap: str, tmp_path: Path) -> None:
    if reason := can_mount(tmp_path):
        missing(f"no disk to fill: {reason}")
    disk = Disk(tmp_path / "data-a")

    async def scenario(field: Field) -> None:
        worker = field.start("a")
        await field.until_public(2)
        disk.fill()
        for ahead_s in (-86_400.0, 86_400.0, 30.0):
            field.clocks["a"].set(ahead_s)
            reached = min(await field.last_public())
            await until(lambda: worker.ended is not None or b"No space left" in worker.log.read_bytes())
        assert re.search(r"cannot be used: No space left on device; .*The state folder", worker.log.read_text())
        disk.free()
        await field.until_public(reached + 3)

    try:
        run(bootstrap, tmp_path, scenario, seed=8)
    finally:
        disk.close()
