"""Time zones, always of the package `tzdata`: of the lock file, not of the machine.

Two workers must not place one event into two steps because one machine's zone database is older than the other's.
Source: the IANA time zone database, compiled (RFC 8536).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.resources import files
from zoneinfo import ZoneInfo


@cache
def zone(name: str) -> ZoneInfo:
    """Return a zone of the IANA database by its name. Raises: KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def names() -> frozenset[str]:
    """Return the names of all zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def database() -> str:
    """Return the release of the database, such as "2025b"."""
    return str(import_module("tzdata").IANA_VERSION)
