"""`[streams.map]`: how the fields of an event follow from a record that has others.

Each expression is JMESPath (https://jmespath.org), of the library `jmespath`: a path, a function such as `to_number`, a
comparison, a literal. One function is added, `lookup`, which reads a public table that the configuration names.

An expression sees one record and nothing else, and neither a clock nor a file while records are read. What it costs is
in proportion to the record: the language has no loops of its own, and a record may not say what separates the parts of
`join`, which would multiply one part of it by another.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple

import orjson
from jmespath import compile as parse
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions, signature
from pydantic import AfterValidator, ConfigDict, Field

from schemas.config.values import FieldName, PlainName, PublicFile, PublicFileAt, Section
from schemas.config.values import refusal as refused
from schemas.errors import ConfigProblem

Table = Mapping[str, Any]
"""Key -> what the table has of it, as JSON has values."""
LONGEST = 2_000
DEEPEST = 50
"""Parts of an expression within each other: all can be computed, whoever asks and from however deep."""
LOOKUP = "lookup"


class MapFunctions(Functions):
    """The functions of JMESPath, and `lookup('TABLE', key)`: what a public table has of a key, or null.

    A text is made of values of JSON alone: of another object its text could say where in memory it stands.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables

    @signature({"types": []})
    def _func_to_string(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), allow_nan=False)

    @signature({"types": ["string"]}, {"types": ["string", "number", "null"]})
    def _func_lookup(self, table: str, key: str | float | None) -> Any:
        return self._tables[table].get(str(key))


def _is_expression(text: str) -> str:
    try:
        tree = parse(text).parsed
    except JMESPathError as error:
        at = getattr(error, "lex_position", None)
        where = "" if at is None else f" at character {at + 1}"
        raise refused(
            f"is no expression of JMESPath{where}", "see https://jmespath.org; texts are 'in quotes'"
        ) from None
    except RecursionError:
        raise refused("has too many parts within each other", "simplify it") from None
    for node, depth in _nodes(tree):
        if depth > DEEPEST:
            raise refused("has too many parts within each other", "simplify it")
        if node["type"] == "function_expression":
            _check_call(node["value"], node["children"])
    return text


def _check_call(name: str, arguments: list[Any]) -> None:
    known = MapFunctions.FUNCTION_TABLE
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        listed = ", ".join(sorted(known))
        raise refused(f"{name} is no function", f"did you mean {near[0]}?" if near else f"functions are {listed}")
    wanted = known[name]["signature"]
    least = len(wanted)
    if len(arguments) < least or (len(arguments) > least and not wanted[-1].get("variadic")):
        raise refused(f"{name} takes another number of arguments", f"pass {least}")
    if name == "join" and arguments[0]["type"] != "literal":
        raise refused("the separator of join is not written out", "write it in quotes, as in join('-', [a, b])")


def _nodes(tree: Any) -> Iterator[tuple[Any, int]]:
    """Yield the parts of an expression, each with how many it is in."""
    level, depth = [tree], 0
    while level:
        yield from ((node, depth) for node in level)
        level = [child for node in level for child in node["children"] if isinstance(child, dict)]
        depth += 1


class ReadPath(NamedTuple):
    """A place of a record that an expression reads: names, None for any. Positions in lists are left out."""

    names: tuple[str | None, ...] = ()
    closed: bool = False
    """Whether a value was made of what stands there, whose own fields are not those of the record."""
    leaf: bool = False
    """Whether nothing that stands beneath is read."""
    root: str = ""
    """What of the record it is in, such as `$key`; empty: the value, which alone expressions read."""

    def field(self, name: str | None) -> ReadPath:
        return self if self.closed or (name is not None and name.isdecimal()) else self._beneath(name)

    def _beneath(self, name: str | None) -> ReadPath:
        return self._replace(names=(*self.names, name))

    def meets(self, other: ReadPath) -> bool:
        """Return whether one of both reads what the other reads, or may."""
        deeper = len(self.names) - len(other.names)
        return (
            self.root == other.root
            and not (self.leaf and deeper < 0)
            and not (other.leaf and deeper > 0)
            and all(
                mine is None or its is None or mine == its for mine, its in zip(self.names, other.names, strict=False)
            )
        )


_NUMBERS = frozenset(
    "abs avg ceil floor length max merge min not_null reverse sort sum to_array to_number values".split()
)
"""Functions that give a number of numbers, whatever these are."""
_BY = frozenset(("max_by", "min_by", "sort_by"))
"""Functions that choose parts of what stands in their first argument, by their second one."""


class Reads(NamedTuple):
    """What an expression makes of a record. Attributes:

    numbers: places whose numbers it may give, or make one of.
    deciding: places whose values decide what it gives, or whether it finds anything. No number is false, so which of
        two is there, as in `a || b`, decides by none.
    others: places that it reads and of whose numbers nothing follows, such as b of `type(b)`.
    """

    numbers: frozenset[ReadPath] = frozenset()
    deciding: frozenset[ReadPath] = frozenset()
    others: frozenset[ReadPath] = frozenset()

    @property
    def all(self) -> frozenset[ReadPath]:
        """Where it reads."""
        return self.numbers | self.deciding | self.others

    def beside(self, *others: Reads) -> Reads:
        """Return what this and others make together."""
        return Reads(*(mine.union(*its) for mine, *its in zip(self, *others, strict=True)))

    def field(self, name: str | None) -> Reads:
        return self._replace(numbers=frozenset(path.field(name) for path in self.numbers))

    def closed(self) -> Reads:
        return self._replace(numbers=frozenset(path._replace(closed=True) for path in self.numbers))

    def deciding_alone(self, *, by_numbers: bool) -> Reads:
        """Return what a part makes that gives no number: by numbers it decides, or they do not matter."""
        if by_numbers:
            return Reads(deciding=self.numbers | self.deciding, others=self.others)
        return Reads(deciding=self.deciding, others=self.numbers | self.others)


def _reads(tree: Any, seen: Reads) -> Reads:
    """Return what an expression makes of what stands at the numbers of `seen`, and what was decided before."""
    children = [child for child in tree["children"] if isinstance(child, dict)]
    match tree["type"]:
        case "field":
            return seen.field(tree["value"])
        case "current" | "identity" | "index" | "slice":
            return seen
        case "subexpression" | "pipe" | "index_expression" | "flatten":
            for child in children:
                seen = _reads(child, seen)
            return seen
        case "projection" | "value_projection" | "filter_projection":
            left = _reads(children[0], seen)
            if tree["type"] == "value_projection":
                left = left.field(None)
            kept, *asked = (_reads(child, left) for child in children[1:])
            return kept.beside(*(each.deciding_alone(by_numbers=False) for each in asked))
        case "function_expression":
            return _called(tree["value"], children, seen)
    found = Reads().beside(*(_reads(child, seen) for child in children))
    match tree["type"]:
        case "comparator":
            # No number is null, or true, or a text that is none.
            alike = tree["value"] in ("eq", "ne") and any(map(_is_no_number, children))
            return found.deciding_alone(by_numbers=not alike)
        case "not_expression":
            return found.deciding_alone(by_numbers=False)
    return found.closed()


def _is_no_number(tree: Any) -> bool:
    """Return whether a part of an expression is written out, and is neither a number nor a text that may be one."""
    match tree:
        case {"type": "literal", "value": None | bool()}:
            return True
        case {"type": "literal", "value": str(text)}:
            try:
                float(text)
            except ValueError:
                return True
    return False


def _called(name: str, arguments: list[Any], seen: Reads) -> Reads:
    given = Reads().beside(*(_reads(each, seen) for each in arguments if each["type"] != "expref"))
    parts = [part for each in arguments if each["type"] == "expref" for part in each["children"]]
    applied = Reads().beside(*(_reads(part, given) for part in parts))
    if name in _BY:
        return given.beside(applied.deciding_alone(by_numbers=True))
    if name == "map":
        return applied.beside(given.deciding_alone(by_numbers=False)).closed()
    if name in _NUMBERS:
        return given.closed()
    # Of a number, `type` says that it is one.
    return given.beside(applied).deciding_alone(by_numbers=name != "type")


Expression = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST), AfterValidator(_is_expression)]
"""An expression of JMESPath whose functions are known."""


def _is_table(file: PublicFile) -> PublicFile:
    table_of(file)
    return file


TableAt = Annotated[PublicFileAt, AfterValidator(_is_table)]
"""Type of a key that names a public table by its path."""


def table_of(file: PublicFile) -> Table:
    """Return a table: a JSON object, or the rows of a CSV by their first column, each an object of texts and nulls.

    Raises: the refusal of the key, for a file that is neither.
    """
    if PurePath(file.path).suffix.lower() == ".json":
        try:
            table = orjson.loads(file.content)
        except orjson.JSONDecodeError:
            table = None
        if not isinstance(table, dict):
            raise refused("is no JSON object", 'write {"KEY": VALUE, ...}')
        return table
    fix = "save it as CSV in UTF-8: a line of column names, then rows of as many cells; or as JSON, named .json"
    try:
        header, *rows = [
            row for row in csv.reader(io.StringIO(file.content.decode("utf-8-sig"), newline=""), strict=True) if row
        ]
    except (UnicodeDecodeError, csv.Error, ValueError):
        raise refused("is no table", fix) from None
    if len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        raise refused("has two columns of one name, or rows of another length than its header", fix)
    table = {row[0]: {name: cell or None for name, cell in zip(header, row, strict=True)} for row in rows}
    if len(table) < len(rows):
        raise refused("has two rows of one key", "the first column is the key of a row: give each a key of its own")
    return table


class MapSection(Section):
    """`[streams.map]`: any other key is a field, and its value the JMESPath that computes it.

    Fields without an expression are read as they are named.
    """

    header: ClassVar[str] = "[streams.map]"
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[FieldName, Expression]

    drop: Expression | None = Field(None, examples=["type == 'test'"])
    """Leaves out the records of which it is true, counted as `DROPPED`; absent: none."""
    tables: dict[PlainName, TableAt] = Field(default_factory=dict, examples=[{"stores": "stores.csv"}])
    """Public tables of `lookup`: name -> path of a CSV or JSON file, relative to the configuration."""

    @property
    def fields(self) -> Mapping[str, str]:
        """Field -> its expression."""
        return dict(self.__pydantic_extra__)

    @property
    def expressions(self) -> Mapping[str, str]:
        """Key -> its expression, `drop` among them."""
        return self.fields if self.drop is None else {**self.fields, "drop": self.drop}

    @property
    def names(self) -> frozenset[str] | None:
        """Names of the fields of a record that expressions can read, and more; None: any."""
        found: set[str] = set()
        for text in self.expressions.values():
            for node, _ in _nodes(parse(text).parsed):
                if node["type"] in ("current", "value_projection"):
                    return None
                if node["type"] == "field":
                    found.add(node["value"])
        return frozenset(found)

    def reads(self, key: str) -> Reads:
        """Return what an expression makes of the value of a record.

        >>> [path.names for path in MapSection(load="sum(meters[*].kw)").reads("load").all]
        [('meters', 'kw')]
        >>> [sorted(path.names for path in places) for places in MapSection(load="age < `9` && kw").reads("load")]
        [[('kw',)], [('age',)], []]
        """
        return _reads(parse(self.expressions[key]).parsed, Reads(frozenset((ReadPath(),))))

    def fingerprint_fields(self) -> dict[str, Any]:
        return {
            "fields": self.fields,
            "drop": self.drop,
            "tables": {name: file.sha256 for name, file in self.tables.items()},
        }

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse what looks into a table that is not there."""
        for key, text in self.expressions.items():
            for node, _ in _nodes(parse(text).parsed):
                if node["type"] != "function_expression" or node["value"] != LOOKUP:
                    continue
                table = node["children"][0]
                if table["type"] != "literal" or table["value"] not in list(self.tables):
                    yield ConfigProblem(
                        key,
                        "lookup names no table",
                        f"write one of {', '.join(self.tables)} in quotes as its first argument"
                        if self.tables
                        else "name its file: tables.NAME = \"FILE.csv\", and write lookup('NAME', key)",
                    )
