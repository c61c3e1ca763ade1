"""What libraries say is let through once a minute each, in one line; what the job says, always."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

from agents.kafka.lifecycle.logs import OncePerCause, Reminder


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(name: str, text: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    trouble = None if error is None else (type(error), error, None)
    return logging.LogRecord(name, logging.WARNING, "", 0, text, args, trouble)


def test_a_library_is_heard_once_a_minute() -> None:
    clock = Clock()
    calm = OncePerCause(every_s=60, now=clock)
    for second in range(59):
        clock.now = second
        passed = calm.filter(record("aiokafka", "Unable connect to node with id %s", second))
        assert passed == (second == 0)
        assert calm.filter(record("aiokafka.consumer.fetcher", "Failed fetch messages")) is False
    clock.now = 60
    line = record("aiokafka", "Unable connect to node with id %s\nand more", 7)
    assert calm.filter(line)
    assert line.getMessage() == "Unable connect to node with id 7 (and 117 lines before)"
    assert calm.filter(record("faust.app", "another library"))


def test_our_own_lines_always_pass() -> None:
    calm = OncePerCause()
    assert all(calm.filter(record("agents.worker.publish", "step %s is public", step)) for step in range(10))
    line = record("agents.worker.process", "with its traceback", error=ValueError())
    line.pathname = "/srv/faust/mode/agents/worker.py"  # whatever folder the program lies in
    assert calm.filter(line)


def test_errors_that_libraries_repeat_with_a_traceback_are_left_out() -> None:
    calm = OncePerCause()
    assert not calm.filter(record("mode.services", "Crashed reason=%r", "x", error=ValueError()))
    assert not calm.filter(record("asyncio", "Task exception was never retrieved"))
    ours = record("agents.worker.ingest.service", "Crashed reason=%r", "x", error=ValueError())
    ours.pathname = "/lib/site-packages/mode/services.py"
    assert not calm.filter(ours)


def test_a_command_without_a_log_prints_no_traceback_of_a_library() -> None:
    """Such as asyncio's, of an error that the command has told already in words of its own."""
    program = (
        "import asyncio, logging, sys\n"
        "from agents.cli import main\n"
        "sys.argv = ['privstream', '--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "async def run():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    loop.create_future().set_exception(ValueError('c4n4ry'))\n"
        "asyncio.run(run())\n"
        "for _ in range(3): logging.getLogger('aiokafka').warning('no broker')\n"
        "logging.getLogger('agents').warning('ours')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == "no broker\nours\n"


def test_a_reminder_comes_once_a_minute_for_each_reason() -> None:
    clock = Clock()
    reminder = Reminder(every_s=60, now=clock)
    assert reminder.due("away")
    assert reminder.due("no leader")
    clock.now = 59.9
    assert not reminder.due("away")
    clock.now = 60
    assert reminder.due("away")


def test_lines_of_json_say_what_they_are_about() -> None:
    """In a process of its own: logging is set up once in each."""
    program = """
import asyncio, logging
from agents.kafka.lifecycle.logs import about, set_up
from agents.kafka.lifecycle.stops import Stops, alone
from schemas.errors import LostTopicError
set_up("INFO", "json")
log = logging.getLogger("agents.worker.engine")
async def task():
    with alone("taxi"):
        await asyncio.to_thread(log.info, "step %s is settled", 7, extra={"step": 7})
async def work():
    with about(role="engine", partition=3):
        await asyncio.gather(task())
    log.info("the worker has left")
asyncio.run(work())
Stops.of(["taxi", "rides"]).add("taxi", "publish", 2, LostTopicError("it is gone"), step=8)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second, third = (json.loads(line) for line in done.stderr.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "INFO",
        "logger": "agents.worker.engine",
        "message": "step 7 is settled",
        "stream": "taxi",
        "role": "engine",
        "partition": 3,
        "step": 7,
    }
    assert second.keys() == {"time", "level", "logger", "message"}
    assert (third["stream"], third["role"], third["partition"], third["step"]) == ("taxi", "publish", 2, 8)
    assert third["message"].startswith("STOPPED: stream taxi")
