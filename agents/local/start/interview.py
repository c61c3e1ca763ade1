"""The questions of `privstream init`, in their order, and the answers: of options, of a person, or what is usual.

Guarantee: no answer is, or is offered, because of a value of a private record. Names, kinds and the form of times come
from the sample; ranges and categories from a file that was declared public, or from the person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import TypeAdapter, ValidationError

from agents.local.start.public import PublicFacts
from agents.local.start.sample import FieldSeen
from agents.local.start.typed import NotAnAnswerError, read_answer
from schemas.config import ENGINES
from schemas.config.domain.common import Each, Question
from schemas.config.engines import EngineSpec
from schemas.config.timing import Timing
from schemas.config.values import FOLDER
from schemas.errors import ConfigError, ConfigProblem

_STEP = Timing.model_fields["step"]
_STEP_TYPE: Any = Annotated[_STEP.annotation, *_STEP.metadata]
STEP: TypeAdapter[Any] = TypeAdapter(_STEP_TYPE)
"""Whatever a step can be."""
TIME_HINTS = ("timestamp", "datetime", "time", "date", "at", "ts", "hour", "day")
USER_HINTS = (
    "user_id",
    "user",
    "customer_id",
    "customer",
    "member",
    "person",
    "driver",
    "rider",
    "account",
    "passenger",
)

_NO_ID = re.compile(r"(counts?|types?|kinds?|class|category|age|gender|total|sum|years?)$")
"""Ends of names that are no ids, though they say of whom they are: `passenger_count`, `usertype`."""


class Person(Protocol):
    """Who is asked."""

    def ask(self, text: str, default: str | None, choices: Sequence[tuple[str, str]]) -> str:
        """One answer as it is typed. `choices`: what can be typed, each with what it means."""

    def say(self, text: str) -> None: ...


@dataclass(slots=True)
class Interview:
    """Answers by their key below the stream, as `privacy.epsilon`.

    Attributes:
        given: answers that are there already, such as options of the command.
        fields: of the raw events; none where nothing is known of them.
        person: None: the usual answers are taken, and what has none is among `missing`.
        folder: of the configuration, from which paths of public files go.
    """

    given: dict[str, Any]
    fields: Sequence[FieldSeen]
    person: Person | None
    public: PublicFacts | None
    folder: Path
    usual_source: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    missing: list[ConfigProblem] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)

    # --- the questions --------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Ask everything."""
        engine = self._engine()
        self._source()
        self._time()
        spec = ENGINES.get(str(engine))
        if spec is None:
            return  # refused when the file is read, with what there is
        self._unit(spec)
        names_user = self._domain(spec)
        for question in spec.asks:
            self.ask(question.key, question)
        self._bounds(names_user=names_user)
        self._budget(spec)
        for key, value in self.given.items():
            self.answers.setdefault(key, value)

    def _engine(self) -> Any:
        what = {name: spec.summary for name, spec in ENGINES.items()}
        self._say_each("engine", "What is a stream of events here?", what)
        return self.ask("engine", Question(key="engine", kind="choice", choices=tuple(what), text="Which engine?"))

    def _source(self) -> None:
        text = "From which topic do raw events come?"
        self.ask("source", Question(key="source", kind="text", text=text, default=self.usual_source or None))
        self.ask("name", Question(
            key="name", kind="text", default=_plain_name(str(self.answers.get("source", ""))) or None,
            text="What is the public stream called? Its topics are NAME.synthetic and others",
        ))  # fmt: skip

    def _time(self) -> None:
        times = [each for each in self.fields if each.time]
        at = self.ask("time.field", Question(
            key="field", kind="field", text="Which field holds the time of an event?", hints=TIME_HINTS
        ), fields=times or self.fields)  # fmt: skip
        form = next((each.time for each in self.fields if each.name == at), "") or "iso"
        self.ask("time.format", Question(
            key="format", kind="text", default=form,
            text="How is it written? iso; s, ms or us since 1970; or a pattern such as %Y-%m-%d %H:%M:%S",
        ))  # fmt: skip
        zone = "In which time zone are times that name none, as Europe/Berlin?"
        self.ask("time.timezone", Question(key="timezone", kind="text", text=zone, default="UTC"))
        self.ask("time.step", Question(
            key="step", kind="duration", text="How long is a step? There is one release in each", default="1h"
        ))  # fmt: skip
        self.ask("time.start", Question(
            key="start", kind="text", default="now",
            text="When does the first step begin? A local time that may be public, as 2026-01-01T00:00:00, or now",
        ))  # fmt: skip

    def _domain(self, spec: EngineSpec) -> bool:
        """Whether the records that were described name users."""
        kinds = {kind: _first_line(model) for kind, model in spec.domains.items()}
        kind = next(iter(kinds))
        if len(kinds) > 1:
            self._say_each("domain.kind", "What can an event be?", kinds)
        kind = self.ask(
            "domain.kind",
            Question(key="kind", kind="choice", choices=tuple(kinds), default=kind, text="Which of them?"),
        )
        model = spec.domains.get(str(kind), next(iter(spec.domains.values())))
        for question in model.questions():
            key = f"domain.{question.key}"
            if isinstance(question, Each):
                self._each(key, question)
            else:
                self.ask(key, question, about=[self.answers.get(f"domain.{name}") for name in question.about])
        table = {key.removeprefix("domain."): value for key, value in self.answers.items() if key.startswith("domain.")}
        try:
            return model.model_validate(table, context={FOLDER: self.folder}).names_user
        except (ValueError, ConfigError):  # said when the whole is read
            return True

    def _unit(self, spec: EngineSpec) -> None:
        units = spec.facts.units
        if len(units) > 1:
            what = {
                "user": "a user with all that the user contributes; needs a field with an id",
                "event": "a single event: less, for events that name nobody",
            }
            self._say_each("privacy.unit", "Who is protected?", what)
        ids = [each for each in self.fields if not _NO_ID.search(each.name.lower())]
        nobody = self.fields and not _likely([each.name for each in ids], USER_HINTS)
        usual = "event" if self.person is not None and nobody and "event" in units else units[0]
        unit = self.ask(
            "privacy.unit",
            Question(key="unit", kind="choice", choices=units, default=usual, text="Which unit of privacy?"),
        )
        if unit != "event":
            text = "Which field holds the user's id?"
            self.ask("privacy.user", Question(key="user", kind="field", text=text, hints=USER_HINTS), fields=ids)

    def _bounds(self, *, names_user: bool) -> None:
        if not names_user:
            self.answers.pop("privacy.user", None)
            self.missing = [each for each in self.missing if each.key != "privacy.user"]
        elif self.answers.get("privacy.unit") != "event":
            text = (
                "How many events of one user count? More are dropped; each gets a smaller part of epsilon. As many "
                "as usual users have; privstream tune compares bounds, on public or old data"
            )
            if "privacy.max_contributions" not in self.answers:
                self.ask("privacy.max_contributions", Question(
                    key="max_contributions", kind="whole", text=text, default=20 if self.person else None
                ))  # fmt: skip
            key = "Which file has the secret key under which user ids are hashed? It is made if it is not there"
            self.ask("privacy.user_key_file", Question(key="user_key_file", kind="file", text=key, default="user.key"))

    def _budget(self, spec: EngineSpec) -> None:
        text = "How much may everything together tell of one unit (epsilon)? 1 is usual, less is more private"
        self.ask("privacy.epsilon", Question(key="epsilon", kind="number", default=1.0, text=text))
        if spec.facts.modes[0] in spec.facts.needs_delta:
            text = "With which probability may the promise fail (delta)? Far below one in your users"
            self.ask("privacy.delta", Question(key="delta", kind="number", text=text, default=1e-6))

    def _each(self, key: str, asked: Each) -> None:
        """Tables as they are given; or names of fields, of which the rest is asked."""
        named = self.given.get(key)
        if named is not None and not (named and isinstance(named, list) and all(isinstance(n, str) for n in named)):
            self.answers[key] = named
            return
        self.given.pop(key, None)
        offered = [each for each in self._free() if each.kind is None or each.kind in asked.of]
        chosen = named or self._chosen(key, asked, offered)
        if chosen is None:
            each = " or ".join(_setting(f"{key}.FIELD.{inner.key}", inner) for inner in asked.inner if inner.public)
            how = f"add --set '{key}=[\"FIELD\", ...]'; of each field --public FILE says the rest, or {each}"
            self.missing.append(ConfigProblem(key, f"missing: {asked.text}", how))
            return
        self.answers[key] = [self._table(key, asked, name) for name in chosen] or [dict(asked.without or {})]

    def _table(self, key: str, asked: Each, name: str) -> dict[str, Any]:
        """Of one field. What is given of it that no question asks is taken as it is."""
        seen = next((each for each in self.fields if each.name == name), None)
        if seen is None and self.fields:
            has = ", ".join(each.name for each in self.fields)
            self.missing.append(ConfigProblem(key, f"there is no field {name}; there are {has}", "name one of them"))
            return {}
        kind = None if seen is None else seen.kind
        table: dict[str, Any] = {asked.field_key: name}
        for question in asked.inner:
            inner = f"{key}.{name}.{question.key}"
            if inner not in self.given and kind is not None and kind not in question.of:
                continue
            value = [False, True] if kind == "boolean" and question.public == "values" else self.ask(
                inner, question, about=[name], of=f"{name}: "
            )  # fmt: skip
            if value not in (None, False):
                table[question.key] = value
            self.answers.pop(inner, None)
        for inner in [each for each in self.given if each.startswith(f"{key}.{name}.")]:
            table[inner.removeprefix(f"{key}.{name}.")] = self.given.pop(inner)
        return table

    def _chosen(self, key: str, asked: Each, offered: Sequence[FieldSeen]) -> list[str] | None:
        names = [each.name for each in offered]
        if self.person is None:
            public = () if self.public is None else self.public.fields
            told = [n for n in names if n in public or any(each.startswith(f"{key}.{n}.") for each in self.given)]
            return told or ([] if asked.without is not None else None)
        default = "-" if asked.without is not None else ", ".join(names) or None
        choices = [(each.name, each.kind or "") for each in offered]
        text = f"{asked.text} (names, with commas between them{'; - for none' if asked.without is not None else ''})"
        while True:
            typed = [name.strip() for name in self.person.ask(text, default, choices).split(",") if name.strip()]
            if typed == ["-"] and asked.without is not None:
                return []
            if typed:
                return typed
            self.person.say("  name at least one")

    # --- one answer -----------------------------------------------------------------------------------------------

    def ask(
        self,
        key: str,
        question: Question,
        *,
        fields: Sequence[FieldSeen] | None = None,
        about: Sequence[Any] = (),
        of: str = "",
    ) -> Any:
        """The answer of a question, kept under `key`; None, and among `missing`, if there is none."""
        if key in self.given:
            return self._keep(key, question, self.given[key])
        if question.kind == "choice" and len(question.choices) == 1:
            return self._keep(key, question, question.choices[0])
        default = self.answers.get(question.same_as) if question.same_as else question.default
        if self.public is not None and question.public:
            told = self.public.answer(question.public, [str(name) for name in about])
            default = default if told is None else told
        offered: Sequence[FieldSeen] = ()
        if question.kind == "field":
            offered = [each for each in self._free(fields) if each.kind is None or each.kind in question.of]
            likely = _likely([each.name for each in offered], (question.key, *question.hints))
            default = likely or (offered[0].name if len(offered) == 1 else None)
        if self.person is None or (question.same_as and default is not None):
            if default is None:
                names = [str(each) for each in about]
                self._lacks(key, question, "" if self.public is None else self.public.too_many(question.public, names))
                return None
            return self._keep(key, question, default)
        return self._keep(key, question, self._asked(key, question, default, offered, of))

    def _asked(self, key: str, question: Question, default: Any, offered: Sequence[FieldSeen], of: str) -> Any:
        assert self.person is not None
        text = f"{of}{question.text or f'What is {key}?'}"
        choices = [(each.name, each.kind or "") for each in offered]
        if question.kind == "choice":
            text += f" ({', '.join(question.choices)})"
        while True:
            typed = self.person.ask(text, None if default is None else _shown(default), choices)
            if default is not None and typed == _shown(default):
                return default
            try:
                value = read_answer(typed, question)
                if question.kind == "duration":
                    STEP.validate_python(value)
            except ValidationError as error:
                self.person.say(f"  {error.errors(include_input=False)[0]['msg']}")
            except NotAnAnswerError as error:
                self.person.say(f"  {error}")
            else:
                if question.kind == "field" and offered and value not in [each.name for each in self.fields]:
                    self.person.say("  no record that was looked at has this field")
                return value

    def _keep(self, key: str, question: Question, value: Any) -> Any:
        self.answers[key] = value
        if question.kind == "field":
            self._used.add(str(value))
        return value

    def _lacks(self, key: str, question: Question, why: str = "") -> None:
        how = OPTIONS.get(key) or _setting(key, question)
        text = f": {said}" if (said := why or question.text) else ""
        self.missing.append(ConfigProblem(key, f"missing{text}", f"add {how}"))

    def _free(self, fields: Sequence[FieldSeen] | None = None) -> list[FieldSeen]:
        return [each for each in (self.fields if fields is None else fields) if each.name not in self._used]

    def _say_each(self, key: str, title: str, what: Mapping[str, str]) -> None:
        """What can be chosen, before it is asked."""
        if self.person is not None and key not in self.given:
            width = max(map(len, what))
            self.person.say("\n".join([f"\n{title}", *(f"  {name:<{width}}  {text}" for name, text in what.items())]))


OPTIONS: Mapping[str, str] = {
    "engine": "--engine NAME",
    "domain.kind": "--kind NAME",
    "source": "--topic TOPIC",
    "name": "--name NAME",
    "time.field": "--time-field NAME",
    "time.format": "--time-format FORMAT",
    "time.timezone": "--timezone ZONE",
    "time.step": "--step DURATION",
    "time.start": "--start TIME",
    "privacy.unit": "--unit user, or event",
    "privacy.user": "--user NAME",
    "privacy.max_contributions": "--max-contributions N",
    "privacy.user_key_file": "--user-key-file FILE",
    "privacy.epsilon": "--epsilon NUMBER",
    "privacy.delta": "--delta NUMBER",
}
"""Options of the command that answer a question; `--set KEY=VALUE` answers any."""


def _setting(key: str, question: Question) -> str:
    """How an option answers it."""
    if question.kind == "numbers":
        return f"--set '{key}=[{', '.join(['N'] * (question.count or 3))}]'"
    return f"""--set '{key}=["TEXT", "TEXT"]'""" if question.kind == "texts" else f"--set {key}=VALUE"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(f'"{each}"' if isinstance(each, str) and "," in each else str(each) for each in value)
    return str(value)


def _first_line(model: type) -> str:
    """What the model's documentation says of it, without its own name."""
    line = (model.__doc__ or "").strip().split("\n\n")[0]
    return re.sub(r"\s+", " ", re.sub(r'^`kind = "[^"]*"`[:.]?\s*', "", line))


def _plain_name(topic: str) -> str:
    """For a stream: the last part of the topic's name that is not what many begin or end with."""
    parts = [part for part in re.split(r"[.]", topic) if part not in ("raw", "events", "app", "private", "v1")]
    return re.sub(r"[^A-Za-z0-9_-]", "-", parts[-1] if parts else topic)


def _likely(names: Iterable[str], hints: Iterable[str]) -> str:
    """The one name that is like a hint, the first hint first; "" if none is, or several are as much."""
    known = list(names)
    tests: Sequence[Callable[[str, str], bool]] = (
        lambda name, hint: name == hint,
        lambda name, hint: hint in re.split(r"[^a-z0-9]+", name),
        lambda name, hint: len(hint) > 2 and (hint in name),
    )
    for like in tests:
        for hint in hints:
            found = [name for name in known if like(name.lower(), hint.lower())]
            if len(found) == 1:
                return found[0]
    return ""
