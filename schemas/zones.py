"""Time zones, always from the package `tzdata`, whose version the lock file pins, and never from the machine.

Two workers must not place one event into different steps because the zone database of one machine is older.
Source: the IANA time zone database, compiled (RFC 8536).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.resources import files
from zoneinfo import ZoneInfo


@cache
def zone(name: str) -> ZoneInfo:
    """Return the zone of this name in the IANA database. Raises: KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def names() -> frozenset[str]:
    """Return the names of all zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def database_version() -> str:
    """Return the version of the IANA database, such as "2025b"."""
    return str(import_module("tzdata").IANA_VERSION)
