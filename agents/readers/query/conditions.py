"""A condition as people write it, in the words of SQL, as the tree that engines answer.

`sqlglot` reads it; of what it reads, comparisons of one field with written values, and `and`, `or`, `not` are taken.
Everything else is refused by name: nothing here computes, calls or looks up.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from engines.core.answers.contract import Asked, QueryError
from engines.core.answers.where import Atom, Both, Either, Not, Where, kind, same
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from sqlglot import exp

SHOWN = "sex = 'f' and age between 30 and 49"
DEEPEST = 100
_OPERATORS: Mapping[str, Literal["=", "<", "<=", ">", ">="]] = {
    "eq": "=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
}
_TURNED: Mapping[str, Literal["=", "<", "<=", ">", ">="]] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def condition(text: str, fields: Mapping[str, Asked]) -> Where:
    """Args:

    fields: those that may be named.
    Raises: QueryError that says what is not understood, or which fields and values there are.
    """
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ImportError:
        raise PrivstreamError(
            "conditions are read by the library sqlglot, which is not installed. Fix: pip install 'privstream[query]'."
        ) from None
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
    except (SqlglotError, RecursionError):
        raise QueryError(
            f'the condition cannot be read. Fix: write one as in SQL, such as "{SHOWN}"; a field whose name is no word '
            "stands in double quotes."
        ) from None
    return _Reader(fields).where(tree, depth=0)


class _Reader:
    def __init__(self, fields: Mapping[str, Asked]) -> None:
        self._fields = fields

    def where(self, node: exp.Expr, *, depth: int) -> Where:
        from sqlglot import exp

        if depth > DEEPEST:
            raise QueryError(f"the condition has more than {DEEPEST} levels. Fix: write lists as field in (1, 2, 3).")
        if isinstance(node, exp.Paren):
            return self.where(node.this, depth=depth + 1)
        if isinstance(node, exp.Not):
            return Not(self.where(node.this, depth=depth + 1))
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.where(part, depth=depth + 1) for part in node.flatten())
            return Both(parts) if isinstance(node, exp.And) else Either(parts)
        if isinstance(node, exp.NEQ):
            return Not(self._compared(node, "="))
        if isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
            return self._compared(node, _OPERATORS[node.key])
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            field = self._field(node.this)
            low, high = (self._value(node.args[end], field, ordered=True) for end in ("low", "high"))
            return Both((Atom(field, ">=", (low,)), Atom(field, "<=", (high,))))
        if isinstance(node, exp.In) and node.expressions:
            field = self._field(node.this)
            return Atom(field, "in", tuple(self._value(each, field) for each in node.expressions))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Atom(self._field(node.this), "null")
        if _is_name(node):
            field = self._field(node)
            if "boolean" in self._fields[field].kinds:
                return Atom(field, "=", (True,))
        raise QueryError(
            f"{node.sql()!r} is no condition that can be answered. Fix: compare a field with a value (=, <>, <, <=, "
            ">, >=, "
            f'between, in, is null), and join such conditions by and, or, not, as in "{SHOWN}".'
        )

    def _compared(self, node: exp.Expr, op: Literal["=", "<", "<=", ">", ">="]) -> Where:

        left, right = node.this, node.expression
        if _is_name(right) and not _is_name(left):
            left, right, op = right, left, _TURNED[op]
        field = self._field(left)
        return Atom(field, op, (self._value(right, field, ordered=op != "="),))

    def _field(self, node: exp.Expr) -> str:
        from sqlglot import exp

        if not _is_name(node):
            raise QueryError(f"{node.sql()!r} is no field. Fix: {self._names()}.")
        assert isinstance(node, exp.Column | exp.Dot)
        # SQL takes a path such as position.lat for a column of a table.
        name = ".".join(str(part.name) for part in node.parts)
        if name not in self._fields:
            near = difflib.get_close_matches(name, self._fields, n=1)
            raise QueryError(f"there is no field {name!r} to ask for. Fix: {near[0] if near else self._names()}.")
        return name

    def _names(self) -> str:
        return f"one of {', '.join(self._fields)}" if self._fields else "leave the condition out: there is one number"

    def _value(self, node: exp.Expr, field: str, *, ordered: bool = False) -> Any:
        value, asked = _literal(node), self._fields[field]
        if kind(value) not in asked.kinds and not (
            asked.listed is not None and any(same(value, v) for v in asked.listed)
        ):
            raise QueryError(
                f"{field} is compared with a {kind(value)}, and its values are {' or '.join(sorted(asked.kinds))}s. "
                "Fix: "
                f"write {'a number without quotes' if 'number' in asked.kinds else 'the value in single quotes'}."
            )
        if not ordered and asked.listed is not None and not any(same(value, each) for each in asked.listed):
            near = difflib.get_close_matches(str(value), [str(each) for each in asked.listed], n=1)
            known = ", ".join(repr(each) for each in asked.listed[:8]) + (", ..." if len(asked.listed) > 8 else "")
            raise QueryError(
                f"{field} has no value {value!r}, so the count would always be 0. Fix: "
                f"{f'{near[0]!r}' if near else f'one of {known}'}."
            )
        return value


def _is_name(node: exp.Expr) -> bool:
    """Whether this is the name of a field, or a path to one."""
    from sqlglot import exp

    return isinstance(node, exp.Column | exp.Dot) and all(
        isinstance(part, exp.Identifier | exp.Literal) for part in node.parts
    )


def _literal(node: exp.Expr) -> Any:
    """A text, a number or a boolean. Raises: QueryError."""
    from sqlglot import exp

    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        value = _literal(node.this)
        if kind(value) == "number":
            return -value
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        try:
            value = int(node.this)
        except ValueError:
            value = float(node.this)
        if abs(value) <= sys.float_info.max:
            return value
        raise QueryError(
            "a number in the condition is too large to compare with. Fix: write one up "
            f"to {sys.float_info.max:.1e}, or leave the comparison out."
        )
    raise QueryError(f"{node.sql()!r} is no written value. Fix: a number, a text in single quotes, true or false.")
