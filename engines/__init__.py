"""The privacy of privstream: pure functions and small classes, without Kafka, clock, file or global state.

It is also the front door of the library: `from engines import configure` gives what docs/library.md describes. What is
behind the door needs the job's own bounds on users, so it stands above the engines, and is loaded when it is asked for
by name, as `engines.core.registry` loads the parts of an engine: no engine imports it.
"""

from __future__ import annotations

import pkgutil
from typing import Any

_DOOR = {
    "configure": "agents.local.library.configure:configure",
    "PrivateStream": "agents.local.library.stream:PrivateStream",
    "StepRelease": "agents.local.library.release:StepRelease",
    "Taken": "agents.local.library.release:Taken",
    "Promise": "agents.local.library.promise:Promise",
    "PrivstreamError": "schemas.errors:PrivstreamError",
}

__all__ = ["PrivateStream", "PrivstreamError", "Promise", "StepRelease", "Taken", "configure"]


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return pkgutil.resolve_name(_DOOR[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
