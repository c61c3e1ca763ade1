"""What a configuration promises, worked out from the engines themselves: as data, and as text, JSON or a page.

Nothing here is typed in twice: budgets, sensitivities and scales come from `engine.guarantee()`, all else from the
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from agents.show.explain import words
from agents.show.explain.parts import (
    Budget,
    Explanation,
    Notch,
    Renewal,
    Roads,
    SharedBudget,
    Split,
    StreamExplanation,
)
from agents.show.view import expected_error, view_of
from engines.core.accounting.streams import totals
from engines.core.registry import build_engine
from schemas.config import Config, Stream
from schemas.config.stream import MIN_EVENT_EPSILON
from schemas.errors import EngineInputError

FACTORS = tuple(Decimal(2) ** power for power in (-3, -2, -1, 0, 1, 2, 3))


def explain(
    config: Config,
    names: Sequence[str] | None = None,
    *,
    earlier: Iterable[Config] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Explanation:
    """Explain streams of a configuration, all of them by default.

    Which streams add up is worked out over the whole file, whichever are asked for, and over `earlier` files with which
    streams of the job have released before. `progress` is told how many streams are done, of how many.

    Raises: BudgetError if an engine's splits do not add up to what is configured; EngineInputError if an engine refuses
        its configuration; KeyError if there is no such stream.
    """
    chosen = config.streams if names is None else tuple(config.stream(name) for name in names)
    shared = tuple(SharedBudget.of(total) for total in totals(config, earlier) if len(total.streams) > 1)
    # Parts of a split are alike but for their names: the first one stands for all.
    wholes = {stream.whole: stream for stream in reversed(chosen)}
    explained = []
    for stream in reversed(wholes.values()):
        explained.append(explain_stream(stream, job=config.job.name, partitions=config.kafka.partitions))
        progress(len(explained), len(wholes))
    return Explanation(config.job.name, tuple(explained), shared)


def explain_stream(stream: Stream, *, job: str, partitions: int | None = None) -> StreamExplanation:
    """Explain one stream, or the split that it is a part of.

    Args: partitions: of the private topics; None where there is no cluster.
    Raises: BudgetError and EngineInputError, as `explain`.
    """
    guarantee = build_engine(stream).guarantee()
    budget = Budget.of(stream, guarantee)
    roads, renewal = Roads.of(stream), Renewal.from_stream(stream)
    split = Split.of(stream, partitions=partitions)
    return StreamExplanation(
        name=stream.whole,
        engine=stream.engine,
        mode=stream.mode,
        source=stream.source,
        step=stream.time.step,
        unit=words.unit_of(stream),
        neighbouring=words.neighbours_of(stream, guarantee),
        promise=words.promise(stream),
        plain=(
            *words.plain(stream, budget),
            *([renewal.sentence()] if renewal else ()),
            *view_of(stream).remarks(stream),
            words.record_time(stream),
            *([words.record_form(stream)] if stream.weighted else ()),
            *([guarantee.note] if guarantee.note else []),
            *(roads.sentences() if roads else ()),
        ),
        symbols=words.symbols(stream, guarantee, budget),
        alerts=(*([split.sentence()] if split else ()), *words.alerts(stream)),
        budget=budget,
        public=tuple(words.public(stream)),
        unprotected=tuple(words.unprotected(stream, job=job)),
        errors=expected_error(stream),
        notches=tuple(_notches(stream)),
        roads=roads,
        renewal=renewal,
        split=split,
    )


def _notches(stream: Stream) -> Iterator[Notch]:
    """Yield half and twice the budget, and so on, without epsilons that configuration or noise refuses."""
    for factor in FACTORS:
        privacy = stream.privacy.model_copy(update={"epsilon": stream.privacy.epsilon * factor})
        other = stream.model_copy(update={"privacy": privacy})
        if other.event_epsilon < MIN_EVENT_EPSILON:
            continue
        try:
            budget, errors = Budget.of(other, build_engine(other).guarantee()), expected_error(other)
        except EngineInputError:
            continue
        yield Notch(Fraction(factor), budget, errors)
