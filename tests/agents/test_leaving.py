"""A process that is told to end is gone in time, whatever it waits for, and its last line says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import logging, os, sys, threading, time
from agents.kafka.lifecycle.leaving import Leaving
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
leaving = Leaving(limit_s=0.2)
leaving.install()
"""
STUCK = "print('runs', flush=True)\nthreading.Lock().acquire() and threading.Event().wait()"
BUSY = "print('runs', flush=True)\nwhile True: pass"
SERVES = "leaving.serves(lambda: None)\n"
LATE = "could not leave in good order"


def run(program: str, *signals: signal.Signals, older: str = "", **environment: str) -> tuple[int, list[str]]:
    """Exit code and lines of a program that is sent signals when it runs. `older`: what it has begun with before."""
    process = subprocess.Popen(
        [sys.executable, "-c", older + HEAD + program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        if signals:
            assert process.stdout.readline() == "runs\n"
            assert process.poll() is None
        for number in signals:
            process.send_signal(number)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output.splitlines()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [STUCK, BUSY])
def test_before_the_work_begins_it_leaves_at_once_and_says_so(program: str, asked: signal.Signals) -> None:
    code, lines = run(program, asked)
    assert code == 0
    assert lines == [f"asked to leave ({asked.name}) while nothing was under way", "the worker has left"]


@pytest.mark.parametrize("program", [STUCK, BUSY])
def test_a_worker_whose_libraries_never_end_is_ended(program: str) -> None:
    code, lines = run(SERVES + program, signal.SIGTERM, signal.SIGTERM)
    assert code == 0
    assert lines[0] == "asked to leave (SIGTERM)"
    assert LATE in lines[-1]
    assert len(lines) == 2


def test_an_error_is_the_last_line_even_where_libraries_never_end() -> None:
    code, lines = run("leaving.begin('the disk is full. What to do: give it room')\n" + STUCK)
    assert code == 1
    assert lines == ["runs", "STOPPED: the disk is full. What to do: give it room"]


def test_nothing_is_said_behind_the_last_line() -> None:
    """Not by what Python itself finds out when it takes the program apart."""
    code, lines = run(
        "import asyncio\nloop = asyncio.new_event_loop()\nfuture = loop.create_future()\n"
        "future.set_exception(ValueError())\nleaving.begin('why')\nleaving.end(1)"
    )
    assert (code, lines) == (1, ["STOPPED: why"])


LIVES = """
import sys
from pathlib import Path
place, when = Path(sys.argv[1]), sys.argv[2]
lives = int(place.read_text()) if place.exists() else 0
place.write_text(str(lives + 1))
"""
AGAIN = """
import signal
def ask():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)  # whoever might take it has the time to
shutdown = logging.shutdown
def flush():
    shutdown()
    if lives == 0 and when == "after the flush":
        ask()
logging.shutdown = flush
if lives == 0:
    leaving.serves(lambda: None)
    if when == "before":
        os.kill(os.getpid(), signal.SIGTERM)
    leaving.again()
threading.Event().wait()
"""


@pytest.mark.parametrize(("when", "lives"), [("before", {"1", "2"}), ("after the flush", {"2"})])
def test_a_signal_that_comes_between_two_lives_is_honoured(tmp_path: Path, when: str, lives: set[str]) -> None:
    """By the first one, if it has noticed it, else by the second."""
    place = tmp_path / "lives"
    command = [sys.executable, "-c", LIVES + HEAD + AGAIN, str(place), when]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "the worker has left"
    assert place.read_text() in lives


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
NATIVE = "import numpy\nnumpy.ones((400, 400)) @ numpy.ones((400, 400))\n"


@pytest.mark.parametrize(
    ("older", "program"),
    [(THREAD, "print('runs', flush=True)\nwhile True: time.sleep(0.01)"), (NATIVE, BUSY)],
    ids=["of Python", "of a native library"],
)
def test_a_thread_that_is_older_passes_a_signal_on(older: str, program: str) -> None:
    """Libraries start threads as they are imported; the main thread may come to it late, but does.

    Where the thread is a native library's, Python's handler is in no thread of Python's, and a loop that never waits
    has no reason to look.
    """
    code, lines = run(program, signal.SIGTERM, older=older, OPENBLAS_NUM_THREADS="2")
    assert code == 0
    assert lines[0].startswith("asked to leave (SIGTERM)")
    assert lines[-1] == "the worker has left" or older == NATIVE
