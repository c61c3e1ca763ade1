"""Write public settings as text: an engine hashes it into the identity of its stored states.

A stored state outlives the code that wrote it, so the text holds no name of a class: a dataclass is written under its
`written_as`, which stays as it is when the class is renamed. Names and order of its fields are in the text too.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from fractions import Fraction

_PLAIN = (str, bytes, int, float, Fraction, type(None))


def written(value: object) -> str:
    """As `repr` wrote it when the first states were stored; fields with `repr=False` are left out.

    Raises: TypeError for what is neither plain nor a dataclass with `written_as`.

    >>> written(("series", 1, Fraction(1, 2), None))
    "('series', 1, Fraction(1, 2), None)"
    >>> written(("alone",))
    "('alone',)"
    """
    if isinstance(value, tuple):
        parts = [written(part) for part in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if is_dataclass(value):
        name = getattr(value, "written_as", None)
        if isinstance(name, str):
            told = [f"{field.name}={written(getattr(value, field.name))}" for field in fields(value) if field.repr]
            return f"{name}({', '.join(told)})"
    if isinstance(value, _PLAIN):
        return repr(value)
    raise TypeError(f"{type(value).__name__} has no stable text: give it `written_as`")
