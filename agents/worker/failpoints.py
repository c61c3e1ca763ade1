"""Named places at which a worker can be told to die, so that tests reach every crash instead of hoping for it.

    PRIVSTREAM_FAILPOINTS="ingest_sent:3,seed_committed:1"    at the 3rd pass of the first, at the 1st of the second
    PRIVSTREAM_FAILPOINT_SIGNAL=STOP                          be stopped there (a zombie) instead of killed

Does nothing where the variable is unset. The signal is one that a program cannot catch: nothing is tidied up.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "PRIVSTREAM_FAILPOINTS"
SIGNAL_VARIABLE = "PRIVSTREAM_FAILPOINT_SIGNAL"


def _read(text: str) -> dict[str, int]:
    parts = (part.strip().partition(":") for part in text.split(",") if part.strip())
    return {name: int(hit or 1) for name, _, hit in parts}


_armed = _read(os.environ.get(VARIABLE, ""))
_signal = signal.SIGSTOP if os.environ.get(SIGNAL_VARIABLE) == "STOP" else signal.SIGKILL
_passes: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Pass a named place; a no-op unless the environment names it."""
    if name not in _armed:
        return
    _passes[name] += 1
    if _passes[name] == _armed[name]:
        os.environ.pop(VARIABLE, None)  # one that is woken and begins anew is not stopped again
        os.kill(os.getpid(), _signal)
