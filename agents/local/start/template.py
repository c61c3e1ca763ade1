"""`privstream init`: a commented configuration, from names of fields, a public file and what `--set` says.

What nobody can guess stands in the file as a line TO FILL IN; whatever else can be said is commented out.

Guarantee: no key is written because of a value of a private record. Names, kinds and the form of times come from the
sample; ranges and categories from a file that was declared public.
"""

from __future__ import annotations

import datetime
import os
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

import tomlkit
from pydantic.fields import FieldInfo
from tomlkit.items import Item, Table

from agents.local.offline.domains import check_streams
from agents.local.start.public import PublicFacts
from agents.local.start.sample import FieldSeen
from agents.protocol.formats.build import InputFormat
from engines.core.noise import fresh_seed
from schemas.config import ENGINES, parse_config
from schemas.config.domain import DomainSection, Question, TablesQuestion
from schemas.config.engines.spec import EngineSpec
from schemas.config.formats import CsvSection, Source
from schemas.config.load import SECTIONS
from schemas.config.privacy import Privacy
from schemas.config.stream import Stream
from schemas.config.timing import Timing
from schemas.config.values import FOLDER, Section, format_duration, prefixed
from schemas.errors import ConfigError, ConfigProblem, PrivstreamError

HEAD = """Written by privstream init. It is yours: change what you like, then privstream validate {file}
Keys that are commented out are as they are by default, or examples; lines TO FILL IN must be written."""
TITLES: Mapping[str, str] = {
    "privacy": "who is protected, and how much all releases together may tell",
    "time": "how an event's time is read, and the public steps",
    "domain": "what an event can be: PUBLIC, written down here, never taken from private data",
    "options": "of the engine; what is commented out is as it would be",
}
WIDTH = 112
LONG = 88
"""Characters of a list that stands in one line."""
TIME_HINTS = ("timestamp", "datetime", "time", "date", "at", "ts", "when", "hour", "day")
TIME_PARTS: Mapping[str, str] = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}
"""Names of fields that hold a part of a time -> how it is written."""
DATE_PARTS = 3
NO_FIELDS = ("source", "name", "audit", "engine", "mode")
"""Keys whose texts are no names of fields."""
_NO_TIME = re.compile(r"birth|dob|expir|valid|(^|_)until")
"""In names of dates that are not when an event happened."""
USER_HINTS = (
    *("user_id", "user", "customer_id", "customer", "member"),
    *("person", "driver", "rider", "account", "passenger"),
)
_NO_ID = re.compile(r"(counts?|types?|kinds?|class|category|age|gender|total|sum|years?)$")
"""Ends of names that are no ids, though they say of whom they are: `passenger_count`, `usertype`."""


class Blank(str):
    """What stands in an example for a value that must be written."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What was written.

    Attributes:
        values: keys below the stream -> what the file says. to_fill: keys that must be written -> what is asked.
        made_key: the user key that was made; None if there was one, or none is needed.
    """

    values: Mapping[str, Any]
    to_fill: Mapping[str, str]
    made_key: Path | None


def write_template(
    out: Path,
    engine: str,
    given: Mapping[str, Any],
    *,
    fields: Sequence[FieldSeen] = (),
    public: PublicFacts | None = None,
    bootstrap: str,
    usual_source: str = "",
    tried: Callable[[Stream], None] = lambda stream: None,
) -> Begun:
    """Write a configuration; it is valid but for the lines TO FILL IN. Writes nothing where it would not be.

    Args:
        given: values by their key below the stream, as `privacy.epsilon`. fields: of the raw events.
        usual_source: the topic that is taken where none is given.
        tried: asked before a whole configuration is written; raises where it does not fit.
    Raises: ConfigError that names what is wrong; PrivstreamError if the file cannot be written.
    """
    spec = _spec(engine)
    template = Template({**_flat(given), "engine": engine}, fields, public)
    template.answer(spec, folder=out.parent, usual_source=usual_source)
    text = template.text(bootstrap=bootstrap, file=out.name)
    try:
        config = parse_config(text, {}, folder=out.parent)
        check_streams(config)
        tried(config.streams[0])
    except ConfigError as error:
        wrong = []
        for problem in error.problems:
            key = problem.key.removeprefix("streams[0].")
            if not any(each == key or each.startswith(f"{key}.") for each in template.to_fill):
                option = f": --set {key}=VALUE" if key != problem.key or key.partition(".")[0] in SECTIONS else ""
                option += ", or leave it out" if key in template.given else ""
                if problem.reason.endswith("unknown key"):
                    option = ""  # it is another key that is to be said
                wrong.append(ConfigProblem(key, problem.reason, problem.fix + option))
        if wrong:
            raise ConfigError(wrong) from None
    made = _make_key(template.values.get("privacy.user_key_file"))
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PrivstreamError(
            f"{out} cannot be written: {error.strerror}. Fix: name a file in a folder of this user with --out."
        ) from None
    return Begun(template.values, {key: asked for key, (asked, _) in template.to_fill.items()}, made)


def _spec(engine: str) -> EngineSpec:
    if engine not in ENGINES:
        width = max(map(len, ENGINES))
        listed = "\n".join(f"  {name:<{width}}  {spec.summary}" for name, spec in ENGINES.items())
        raise PrivstreamError(f"there is no such engine. Fix: say with --engine what a stream of events is:\n{listed}")
    return ENGINES[engine]


class Template:
    """Keys of a stream with their values, and those that must be written.

    Attributes:
        given: what is told, which no guess replaces; no field that it names is taken for anything else.
        values: key -> value. to_fill: key -> what is asked, and an example in TOML.
        offered: key -> what is said of a choice that is no answer yet, and the choice in TOML: for comments.
    """

    def __init__(self, given: Mapping[str, Any], fields: Sequence[FieldSeen], public: PublicFacts | None) -> None:
        self.given, self._fields, self._public = given, fields, public
        self.values: dict[str, Any] = {}
        self.to_fill: dict[str, tuple[str, str]] = {}
        self.offered: dict[str, tuple[str, str]] = {}
        self._examples: dict[str, str] = {}
        self._finds = False
        self._used: set[Any] = {
            text for key, value in given.items() if key not in NO_FIELDS for text in _texts_in(value)
        }

    def answer(self, spec: EngineSpec, *, folder: Path, usual_source: str) -> None:
        """Answer all that a stream of the engine must say."""
        self._ask("source", Question(
            key="source", kind="text", text="From which topic do raw events come?", default=usual_source or None
        ))  # fmt: skip
        self._ask("name", Question(
            key="name", kind="text", text="What is the public stream called? Its topics are NAME.synthetic and others",
            default=_plain_name(str(self.values.get("source", ""))) or None,
        ))  # fmt: skip
        step = self._time()
        usual: dict[str, Any] = {"time.timezone": "UTC", "time.step": step, "time.start": "now"}
        usual |= {"privacy.unit": spec.facts.units[0], "privacy.epsilon": 1.0, "domain.kind": next(iter(spec.domains))}
        for key, value in usual.items():
            self.values[key] = self.given.get(key, value)
        if self.values["privacy.unit"] != "event":
            self._ask(
                "privacy.user",
                Question(
                    key="user", kind="field", hints=USER_HINTS,
                    text="Which field holds the user's id? Where events name nobody, say --set privacy.unit=event in "
                    "place of it, and events are protected.",
                ),
                fields=[each for each in self._fields if not _NO_ID.search(each.name.lower())],
            )  # fmt: skip
        domain = self._domain(spec, folder)
        # What cannot be read yet is said when the whole is.
        names_user = domain is None or domain.names_user
        for question in spec.asks:
            self._ask(question.key, question)
        if not names_user:
            self.values.pop("privacy.user", None)
            self.to_fill.pop("privacy.user", None)
        elif self.values["privacy.unit"] != "event":
            if "privacy.max_contributions" not in self.values:
                self._ask("privacy.max_contributions", Question(
                    key="max_contributions", kind="whole",
                    text=f"How many {'keys of' if spec.facts.contribution == 'pair' else 'events of'} one user count? "
                    "More are dropped; each gets a smaller part of epsilon. As many as usual users have; privstream "
                    "tune compares bounds, on public or old data",
                ))  # fmt: skip
            self.values["privacy.user_key_file"] = self.given.get("privacy.user_key_file", "user.key")
        mode = self.given.get("mode", spec.facts.modes[0])
        finds = self._finds or (domain is not None and spec.facts.threshold_share(mode, domain) > 0)
        if finds or spec.facts.modes[0] in spec.facts.needs_delta:
            self.values["privacy.delta"] = self.given.get("privacy.delta", 1e-6)
        rest = {key: value for key, value in self.given.items() if key not in self.to_fill}
        self.values = {**rest, **self.values}

    def text(self, *, bootstrap: str, file: str) -> str:
        """Return the file."""
        made = tomlkit.document()
        for line in HEAD.format(file=file).splitlines():
            made.add(tomlkit.comment(line))
        made.add(tomlkit.nl())
        beside: dict[str, dict[str, Any]] = {
            "job": {"name": "privstream"},
            "kafka": {"bootstrap": bootstrap, "partitions": 4},
        }
        for name, section in SECTIONS.items():
            made[name] = _section(section, {**beside[name], **_nested(_below(name, self.values))})
        spec = ENGINES[self.values["engine"]]
        kind = self.values["domain.kind"]
        if kind not in spec.domains:
            reason = f'engine "{spec.name}" has no such kind of domain; it has {", ".join(spec.domains)}'
            raise ConfigError.of("domain.kind", reason, "write one of them: --set domain.kind=KIND")
        models: dict[str, type[Section]] = {
            "privacy": Privacy, "time": Timing, "domain": spec.domains[kind], "options": spec.options,
        }  # fmt: skip
        others = {key: value for key, value in self.values.items() if "." not in key}
        stream = _section(Stream, others, to_fill=self.to_fill, without=tuple(models))
        for name, model in models.items():
            mine, asked = _below(name, self.values), _below(name, self.to_fill)
            kinds = f"; kinds: {', '.join(spec.domains)}" if name == "domain" and len(spec.domains) > 1 else ""
            offered = _below(name, self.offered)
            stream[name] = _section(model, mine, to_fill=asked, offered=offered, title=TITLES[name] + kinds)
        for name in dict.fromkeys(key.partition(".")[0] for key in self.values if "." in key):
            if name not in models and name not in SECTIONS:
                stream[name] = _item_table(_nested(_below(name, self.values)))
        streams = tomlkit.aot()
        streams.append(stream)
        made["streams"] = streams
        return tomlkit.dumps(made)

    def _time(self) -> str:
        """Answer which field holds the time, and how it is written, by what ingest reads. Returns: the usual step."""
        known = {each.name: each for each in self._fields}
        told, form = self.given.get("time.field"), self.given.get("time.format")
        asked = Question(key="field", kind="field", text="Which field holds the time of an event?", hints=TIME_HINTS)
        times = [
            each for each in self._fields
            if each.times and (form is None or form in each.times) and not _NO_TIME.search(each.name.lower())
        ]  # fmt: skip
        # Among others a number is a time by its name alone.
        if not self._fields or told is not None:
            self._ask("time.field", asked)
        elif likely := _likely(self._offered(asked, times), TIME_HINTS):
            self.values["time.field"] = likely
            self._used.add(likely)
        elif len(only := self._offered(asked, times)) == 1 or (
            len(only := [each for each in only if known[each].kind == "text"]) == 1
        ):
            self.values["time.field"] = only[0]
            self._used.add(only[0])
        else:
            offered = self._offered(asked, times)
            more = f" Of {', '.join(offered)}" if offered else (
                " None of the sample's is a whole time in a form that is known: name one, with how it is written as "
                f"--set time.format=FORMAT; {self._of_parts() or 'parts such as an hour alone are none'}"
            )  # fmt: skip
            self.to_fill["time.field"] = asked.text + more, '"FIELD"'
        at = known.get(str(self.values.get("time.field")))
        if form is not None:
            self.values["time.format"] = form
        elif at is None:
            self.values["time.format"] = "iso"
        elif len(at.times) == 1:
            self.values["time.format"] = at.times[0]
        else:
            why = (
                f"the sample does not tell which of {' and '.join(at.times)}" if at.times
                else "it is not in a form that is known, or a part of a time: write a strptime pattern, or name "
                "another field with --set time.field=FIELD"
            )  # fmt: skip
            self.to_fill["time.format"] = f"How is {at.name} written? Of the sample {why}", '"FORMAT"'
        return "1 day" if at is not None and at.days else "1h"

    def _of_parts(self) -> str:
        """Return what makes a time of fields that are named as its parts; "" where year, month and day are not."""
        free = {name.lower(): name for name in self._offered(Question(key="field", kind="field"), self._fields)}
        parts = list(takewhile(free.__contains__, TIME_PARTS))
        if len(parts) < DATE_PARTS:
            return ""
        texts = ", ".join(f"to_string({free[part]})" for part in parts)
        form = "-".join(TIME_PARTS[part] for part in parts)
        return (
            f"""or, of {", ".join(free[part] for part in parts)}, --set "map.at=join('-', [{texts}])" --set """
            f"time.field=at --set time.format={form}"
        )

    def _domain(self, spec: EngineSpec, folder: Path) -> DomainSection | None:
        """Answer what the domain must say. Returns: the section; None where it is not whole."""
        model = spec.domains.get(self.values["domain.kind"], next(iter(spec.domains.values())))
        for question in model.questions():
            key = f"domain.{question.key}"
            if isinstance(question, TablesQuestion):
                self._tables(key, question)
                continue
            about = [self.values.get(f"domain.{name}") for name in question.field_keys]
            if question.optional and key not in self.given and (not about or None in about):
                self._offer(key, question)
            else:
                self._ask(key, question, about=about)
        try:
            domain = _below("domain", {**self.given, **self.values})
            return model.model_validate(domain, context={FOLDER: folder})
        except ConfigError:
            return None

    def _ask(
        self, key: str, question: Question, *, fields: Sequence[FieldSeen] | None = None, about: Sequence[Any] = ()
    ) -> Any:
        """Keep the answer of a question; None where it must be filled in."""
        fields = self._fields if fields is None else fields
        value = self.given[key] if key in self.given else self._usual(question, fields, about)
        if value is not None:
            self.values[key] = value
            self._used |= {value} if question.kind == "field" else set()
            return value
        public = " Or name a PUBLIC file that has it with --public." if question.public and self._public is None else ""
        why = "" if self._public is None else self._public.too_many(question.public, [str(each) for each in about])
        offered = self._offered(question, fields) if question.kind == "field" else []
        asked = question.text or f"What is {key}?"
        if question.of_user:
            user = self.values.get("privacy.user", "USER")
            asked += (
                f" Where each user has one, say --set map.{question.of_user}={user} --set {key}={question.of_user}."
            )
        self.to_fill[key] = why or asked + (f" Of {', '.join(offered)}" if offered else public), _blank(question)
        return None

    def _usual(self, question: Question, fields: Sequence[FieldSeen], about: Sequence[Any]) -> Any:
        """Return what is taken where nobody says it; None where somebody must."""
        if question.kind == "field":
            offered = self._offered(question, fields)
            likely = _likely(offered, (question.key, *question.hints))
            # An id is taken by its name alone: a field that is none would protect nobody.
            return likely or (offered[0] if len(offered) == 1 and question.key != "user" else None)
        if self._public is not None and question.public:
            said = self._public.answer(question.public, [str(name) for name in about])
            if said is not None:
                return said
        return self.values.get(question.same_as) if question.same_as else question.default

    def _tables(self, key: str, asked: TablesQuestion) -> None:
        """Keep tables as they are given; or make those of fields that are named, or that the public file has."""
        given = self.given.get(key)
        named = isinstance(given, list) and bool(given) and all(isinstance(name, str) for name in given)
        if given is not None and not named:
            self.values[key] = given
            return
        if (other := asked.instead) is not None and (
            many := self._with_values(given or self._offered(other, self._fields), few=False)
        ):
            self.offered[key] = f"{other.text}: of {', '.join(many)}", _rows([self._table(other, many[0])])
        free = self._offered(asked, self._fields)
        names = given or [name for name in free if self._public is not None and name in self._public.fields]
        known = {each.name for each in self._fields}
        if unknown := sorted(name for name in names if known and not {name, name.partition(".")[0]} & known):
            has = ", ".join(each.name for each in self._fields)
            raise ConfigError.of(key, f"there is no field {unknown[0]}; there are {has}", "name one of them")
        if not names and asked.fallback is not None:
            self.values[key] = [dict(asked.fallback)]
            return
        tables = [self._table(asked, name) for name in names or free or [Blank('"FIELD"')]]
        self._find_values(key, asked, tables)
        if names and not any(isinstance(value, Blank) for table in tables for value in table.values()):
            self.values[key] = tables
            return
        open_ones = [
            str(table[asked.field_key]) for table in tables if any(isinstance(v, Blank) for v in table.values())
        ]
        why = [] if self._public is None else [self._public.too_many("values", [name]) for name in open_ones]
        public = " Or name a PUBLIC file that has them with --public." if self._public is None else ""
        self.to_fill[key] = next(filter(None, why), asked.text + public), _rows(tables)

    def _find_values(self, key: str, asked: TablesQuestion, tables: Sequence[dict[str, Any]]) -> None:
        """Answer by `Question.unlisted` for one field of which a public file has too many values; or offer it."""
        for question in asked.questions:
            open_ones = [table for table in tables if question.unlisted and isinstance(table.get(question.key), Blank)]
            if not open_ones:
                continue
            if self._public is None:
                rows = [{asked.field_key: open_ones[0][asked.field_key], question.key: question.unlisted}]
                self.offered[key] = f"Where nobody can list them, {asked.unlisted}.", _rows(rows)
                continue
            named = {str(table[asked.field_key]): table for table in open_ones}
            many = [name for name in named if self._public.too_many(question.public, [name])]
            if many:
                few = [{**named[many[0]], question.key: Blank(_blank(question))}]
                named[many[0]][question.key] = question.unlisted
                self._finds = True
                self.offered[key] = (
                    f"{self._public.path.name} has more values of {many[0]} than can be listed: {asked.unlisted}. Or "
                    "leave the field out, or list those that matter, and which of the others are refused:",
                    _rows(few),
                )

    def _offer(self, key: str, question: Question) -> None:
        """Offer a field with few values, or what is known of the one that is offered."""
        if question.kind == "field":
            if names := self._with_values(self._offered(question, self._fields), few=True):
                self._examples[question.key] = names[0]
                self.offered[key] = f"Here: {', '.join(names)}.", _toml(names[0])
        elif about := [self._examples[name] for name in question.field_keys if name in self._examples]:
            value = None if self._public is None else self._public.answer(question.public, about)
            self.offered[key] = "", _blank(question) if value is None else _toml(value)

    def _with_values(self, names: Sequence[str], *, few: bool) -> list[str]:
        """Return those that have few values in the public file, or many; all of them where there is no such file."""
        public = self._public
        return [name for name in names if public is None or (name in public.fields and public.few(name) == few)]

    def _table(self, asked: TablesQuestion, name: str) -> dict[str, Any]:
        """Return what is known of one field, with a `Blank` for what must be written."""
        kind = next((each.kind for each in self._fields if each.name == name), None)
        table: dict[str, Any] = {asked.field_key: name}
        for question in asked.questions:
            if (kind or "text") not in question.field_kinds:  # `values` are for texts, `edges` for numbers
                continue
            value = self._usual(question, (), [name])
            if kind == "boolean" and question.public == "values":
                value = [False, True]
            if value is None:
                value = Blank(_blank(question))
            if value is not False:
                table[question.key] = value
        return table

    def _offered(self, asked: Question | TablesQuestion, fields: Iterable[FieldSeen]) -> list[str]:
        """Return fields of a fitting kind that nothing else is read from."""
        free = (each for each in fields if each.name not in self._used)
        return [each.name for each in free if each.kind is None or each.kind in asked.field_kinds]


def _rows(tables: Iterable[Mapping[str, Any]]) -> str:
    """Return tables in TOML, on one line."""
    rows = ("{ " + ", ".join(f"{name} = {_toml(value)}" for name, value in table.items()) + " }" for table in tables)
    return f"[{', '.join(rows)}]"


def read_setting(text: str) -> Any:
    """Return the value of `--set KEY=VALUE`: TOML, or, where it is none, and where it is a time, a text.

    >>> read_setting("[1, 2]"), read_setting("6h"), read_setting('{ name = "a" }'), read_setting("2024-01-01")
    ([1, 2], '6h', {'name': 'a'}, '2024-01-01')
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if isinstance(value, (datetime.date, datetime.time)) else value


def csv_layout(given: Mapping[str, Any]) -> CsvSection:
    """Return the layout of CSV files that `--set csv.KEY=VALUE` says. Raises: ConfigError."""
    try:
        return CsvSection.model_validate(_below("csv", _flat(given)))
    except ConfigError as error:
        raise ConfigError(list(prefixed("csv", error.problems))) from None


def source_form(given: Mapping[str, Any]) -> InputFormat:
    """Return how records of the source are written, as `--set` says. Raises: ConfigError."""
    keys = {key: given[key] for key in ("format", "envelope") if key in given}
    source = Source.model_validate(keys)
    return InputFormat(source.format, source.envelope, csv=csv_layout(given) if source.format == "csv" else None)


def section_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `--set` says of a section.

    >>> section_of("kafka", {"kafka.registry.url": "u", "source": "t"})
    {'registry': {'url': 'u'}}
    """
    return _nested(_below(name, _flat(given)))


def _below(name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(f"{name}."): value for key, value in keys.items() if key.startswith(f"{name}.")}


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with a dot for those of tables, as `time.field` of `time = { field = "at" }`."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        section = "." not in key and isinstance(value, Mapping)
        found |= {f"{key}.{name}": inner for name, inner in value.items()} if section else {key: value}
    return found


def _nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """
    >>> _nested({"registry.url": "u", "bootstrap": "b"})
    {'registry': {'url': 'u'}, 'bootstrap': 'b'}
    """
    found: dict[str, Any] = {}
    for key, value in keys.items():
        head, _, rest = key.partition(".")
        found[head] = {**found.get(head, {}), **_nested({rest: value})} if rest else value
    return found


def _item_table(keys: Mapping[str, Any]) -> Table:
    table = tomlkit.table()
    for key, value in keys.items():
        table.add(key, _item(value))
    table.add(tomlkit.nl())
    return table


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value of TOML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, Mapping)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(inner)


def _blank(question: Question) -> str:
    """Return an example of an answer, in TOML."""
    if question.example:
        return question.example
    return {"texts": '["TEXT", "TEXT"]', "whole": "N", "number": "N", "field": '"FIELD"'}.get(question.kind, '"TEXT"')


def _plain_name(topic: str) -> str:
    """Return a name for a stream: the last part of the topic's name that is not what many begin or end with."""
    parts = [part for part in topic.split(".") if part not in ("raw", "events", "app", "private", "v1")]
    return re.sub(r"[^A-Za-z0-9_-]", "-", parts[-1] if parts else topic)


def _likely(names: Iterable[str], hints: Iterable[str]) -> str:
    """Return the one name that is like a hint, the first hint first; "" if none is, or several are as much."""
    known = list(names)
    tests: Sequence[Callable[[str, str], bool]] = (
        lambda name, hint: name == hint,
        lambda name, hint: hint in re.split(r"[^a-z0-9]+", name),
        lambda name, hint: len(hint) > 2 and (hint in name),
    )
    for like in tests:
        for hint in hints:
            alike = [name for name in known if like(name.lower(), hint.lower())]
            if len(alike) == 1:
                return alike[0]
    return ""


def _make_key(name: str | None) -> Path | None:
    """Make the file with the secret of the hash of user ids, for this user alone; None where it is there already."""
    path = None if name is None else Path(name)
    if path is None or path.exists():
        return None
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as key:
            key.write(fresh_seed())
    except OSError as error:
        raise PrivstreamError(
            f"the user key {path} cannot be made: {error.strerror}. Fix: name a file in a folder of this user: --set "
            "privacy.user_key_file=FILE."
        ) from None
    return path


# --- TOML -----------------------------------------------------------------------------------------------------------


def _section(
    model: type[Section],
    told: Mapping[str, Any],
    *,
    to_fill: Mapping[str, tuple[str, str]] | None = None,
    offered: Mapping[str, tuple[str, str]] | None = None,
    title: str = "",
    without: tuple[str, ...] = (),
) -> Table:
    """Return a table: what is known or to be filled in, each below what it means; then what may be said."""
    table, to_fill, offered = tomlkit.table(), to_fill or {}, offered or {}
    if title:
        table.comment(title)
    fields = {field.alias or name: field for name, field in model.model_fields.items() if name not in without}
    known = told.keys() | to_fill.keys()
    for key in [*(key for key in fields if key in known), *(key for key in told if key not in fields)]:
        words = _words(fields.get(key))
        asked, example = to_fill.get(key, ("", ""))
        for line in textwrap.wrap(words, WIDTH) if key in told or not asked.startswith(words) else ():
            table.add(tomlkit.comment(line))
        if key in told:
            table.add(key, _item(told[key]))
        else:
            for line in textwrap.wrap(f"TO FILL IN: {asked}", WIDTH):
                table.add(tomlkit.comment(line))
            table.add(tomlkit.comment(f"{key} = {example}"))
        if key in offered:
            said, example = offered[key]
            for line in [*textwrap.wrap(said, WIDTH), f"{key} = {example}"]:
                table.add(tomlkit.comment(line))
    for key, field in fields.items():
        if key not in known:
            said, example = offered.get(key, ("", ""))
            for line in _possible(key, field, f"{_words(field)} {said}".strip(), example):
                table.add(tomlkit.comment(line))
    table.add(tomlkit.nl())
    return table


def _words(field: FieldInfo | None) -> str:
    """Return the documentation of a key, the text below it in the source of its class, as one line."""
    return " ".join((field.description or "").split()) if field is not None else ""


def _possible(key: str, field: FieldInfo, words: str, offered: str) -> Iterator[str]:
    """Yield the lines of a key that is not written, as it is offered, as it is by default, or as an example."""
    value = field.get_default(call_default_factory=True) if not field.is_required() else None
    if value in (None, ()) and field.examples:
        value = field.examples[0]
    if not offered and (value is None or isinstance(value, Section) or value == ()):
        return
    shown = f"{key} = {offered or _toml(value)}"
    if words and len(shown) + len(words) > WIDTH:
        yield from textwrap.wrap(words, WIDTH)
        yield shown
    else:
        yield f"{shown}  # {words}" if words else shown


def _toml(value: Any) -> str:
    return str(value) if isinstance(value, Blank) else _item(value).as_string()


def _item(value: Any) -> Item:
    if isinstance(value, datetime.timedelta):
        return tomlkit.item(format_duration(value))
    if isinstance(value, Decimal):
        return tomlkit.item(float(value))
    if isinstance(value, Mapping):
        inline = tomlkit.inline_table()
        for key, inner in value.items():
            inline.add(key, _item(inner))
        return inline
    if isinstance(value, (list, tuple)):
        listed = tomlkit.array()
        for each in value:
            listed.append(_item(each))
        # Many values of which none is a table stay in one line: a line for each would be a page.
        return listed.multiline(len(listed.as_string()) > LONG and any(isinstance(each, Mapping) for each in value))
    return tomlkit.item(value if isinstance(value, (bool, int, float)) else str(value))
