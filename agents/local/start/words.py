"""What the sections' own documentation says of each key: the comments of a file that is written."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from schemas.config.values import Section


def documented(model: type[Section]) -> dict[str, str]:
    """Key -> the text below it in the source of its class, or of one above, as one line; none where there is none."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, Section):
            found |= _of_class(each)
    aliases = {name: field.alias or name for name, field in model.model_fields.items()}
    return {aliases[name]: text for name, text in found.items() if name in aliases}


def _of_class(model: type[Section]) -> dict[str, str]:
    try:
        [body] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    except OSError:  # of a distribution without sources
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for key, below in pairwise(body.body):
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                found[key.target.id] = " ".join(text.split())
    return found
