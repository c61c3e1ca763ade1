"""Answers as a person types them, as values of TOML."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from typing import Any

from schemas.config.domain.common import AnswerKind, Question

FLAGS: Mapping[str, bool] = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class NotAnAnswerError(ValueError):
    """What was typed cannot be used; says what to type."""


def read_answer(text: str, question: Question) -> Any:
    """The value that is meant. Raises: NotAnAnswerError.

    >>> read_answer("13.08, 52", Question(key="limits", kind="numbers"))
    [13.08, 52]
    """
    text = text.strip()
    kind = question.kind
    if not text:
        raise NotAnAnswerError("this needs an answer")
    if kind in ("numbers", "texts"):
        found = _listed(text, kind)
        if question.count and len(found) != question.count:
            raise NotAnAnswerError(f"these are {len(found)}, and {question.count} are needed, with commas between them")
        return found
    if kind == "flag":
        if text.lower() not in FLAGS:
            raise NotAnAnswerError("type yes or no")
        return FLAGS[text.lower()]
    if kind in ("number", "whole"):
        return _number(text, whole=kind == "whole")
    if kind == "choice" and text not in question.choices:
        raise NotAnAnswerError(f"type one of {', '.join(question.choices)}")
    return text


def _number(text: str, *, whole: bool = False) -> float | int:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise NotAnAnswerError(f"type a {'whole ' if whole else ''}number") from None
    return int(value) if value == int(value) and "." not in text else value


def _listed(text: str, kind: AnswerKind) -> list[Any]:
    """With commas between, in TOML's square brackets or without; texts that hold a comma in double quotes."""
    if text.startswith("["):
        value = read_setting(text)
        if isinstance(value, list):
            return value
    [cells] = csv.reader([text.strip("[]")], skipinitialspace=True)
    cells = [cell.strip() for cell in cells if cell.strip()]
    return [_number(cell) for cell in cells] if kind == "numbers" else cells


def read_setting(text: str) -> Any:
    """The value of `--set KEY=VALUE`: TOML, or, where it is none, a text.

    >>> read_setting("[1, 2]"), read_setting("6h"), read_setting('{ name = "a" }')
    ([1, 2], '6h', {'name': 'a'})
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
