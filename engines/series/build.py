"""Engine `series`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from fractions import Fraction

from engines.core.contract import Engine, Evaluator
from engines.series.bank import Clock
from engines.series.budget import Presence
from engines.series.config import SeriesConfig
from engines.series.engine import Series
from engines.series.fields import GroupedBy, SeriesDomain, SeriesField
from schemas.config import Stream
from schemas.config.engines.series import SeriesDomainSection, SeriesOptions
from schemas.steps import CalendarLength

_DAY_US = 86_400_000_000
_LONGEST_PERIOD = 1440
_WEEK = 7


def domain(stream: Stream) -> SeriesDomain:
    section = SeriesDomainSection.from_stream(stream)
    by = None if section.by is None else GroupedBy(section.by, section.values or ())
    return SeriesDomain(
        tuple(
            SeriesField(
                name=field.name,
                of=field.of,
                limits=field.limits,
                sensitivity=field.sensitivity,
                share=Fraction(field.share),
                edges=field.edges,
            )
            for field in section.series
        ),
        by,
    )


def presence(stream: Stream) -> Presence:
    """Return where one unit may be: in all readings; or in as many steps as its bounds allow."""
    section, privacy = SeriesDomainSection.from_stream(stream), stream.privacy
    renews = stream.period_steps is not None
    steps = stream.period_steps if renews else SeriesOptions.from_stream(stream).horizon
    if section.readings:
        return Presence(steps=steps, renews=renews)
    most = 1 if privacy.unit == "event" else privacy.max_contributions
    assert most is not None
    return Presence(events=most, per_step=min(privacy.max_per_step or most, most), steps=steps, renews=renews)


def clock(stream: Stream) -> Clock | None:
    """Return days of shorter steps, weeks of daily ones; none where a day is no whole number of steps.

    Places in the day go by the local time of the start; a change to summer time is not followed. Days of the calendar
    are days, whatever their length.
    """
    step_us, start_us = stream.time.shortest_us, stream.time.start_in_week_us
    if isinstance(stream.time.step, CalendarLength):
        step_us = stream.time.step.days * _DAY_US
    cut = step_us > 0 and _DAY_US % step_us == 0 and _DAY_US // step_us <= _LONGEST_PERIOD
    if not SeriesOptions.from_stream(stream).seasonal or not cut:
        return None
    if start_us is None:
        # "now": where a day begins is not known, which waves do not mind; weekends are not told apart.
        return Clock(period=_WEEK if step_us == _DAY_US else _DAY_US // step_us)
    weekday, since = divmod(start_us, _DAY_US)
    if step_us == _DAY_US:
        return Clock(period=_WEEK, phase=weekday)
    return Clock(period=_DAY_US // step_us, phase=since // step_us, weekday=weekday)


def config_class(mode: str) -> type[SeriesConfig]:
    """Return the class of the recipe of a mode."""
    if mode in SeriesConfig.modes:
        return SeriesConfig
    from engines.series.papers.ar1 import PaperSeriesConfig

    return PaperSeriesConfig


def config(stream: Stream) -> SeriesConfig:
    """Return the recipe of a configured stream. Raises: EngineInputError."""
    options = SeriesOptions.from_stream(stream)
    return config_class(stream.mode)(
        name=stream.name,
        domain=domain(stream),
        mode=stream.mode,
        epsilon=stream.event_epsilon,
        delta=stream.privacy.delta,
        presence=presence(stream),
        horizon=options.horizon,
        clock=clock(stream) if stream.mode == "default" else None,
        weight=options.weight_fraction,
        positive=options.correlation == "positive",
        decay=options.decay_fraction,
    )


def build(stream: Stream) -> Engine:
    return Series(config(stream))


def evaluator(stream: Stream) -> Evaluator:
    from engines.series.evaluator import SeriesEvaluator  # here: a worker measures no utility

    return SeriesEvaluator(domain(stream))
