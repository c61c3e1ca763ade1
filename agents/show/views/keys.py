"""What engine `keys` shows: how many people a key needs to be found, listed keys beside true ones, errors over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, sqrt
from typing import Any

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import AMBER, BLUE, SYNTHETIC, TRUE, BarChart, Chart, Curve, LineChart, Panel, Table, written
from agents.show.noise import Answer, ErrorModel
from agents.show.pictures import WIDE, KeyPicture
from agents.show.text import value_text
from agents.show.view import Judged, Metric, ReportSection, Scale, StepRow, View, over_time, percent, plain
from engines.keys.build import domain, selection
from engines.keys.domain import Name, name_of, read
from engines.keys.evaluator import KeysEvaluator
from engines.keys.selection import KeySelection
from schemas.config import Stream
from schemas.config.engines.keys import KeysDomainSection, KeysOptions
from schemas.guarantee import Guarantee

MANY_TESTS, FEW_TESTS = 30, 10
"""Of a period: beyond the first `validate` warns, as each makes thresholds larger; the second is a good choice."""
SHOWN = 20
"""Keys in the report's bars."""
RELEASED = "published"
KINDS = ("sum", "mean")
"""Of values: fields of a record, each with its standard error."""
SIZES = (1_000_000, 300_000, 100_000, 30_000, 10_000, 3_000, 1_000, 300, 100, 30, 10)
"""People of a key for which the error of its count is shown."""

ERROR = Metric(
    keys=("error",),
    label="error of all keys",
    meaning="How far counts are from how many people truly have a key, without signs, over all keys that anybody has; "
    "one that is not listed counts as 0. As a share of all people, each of whom is there once for each key.",
    text=percent,
)
LISTED = Metric(
    keys=("listed",),
    label="keys that are listed",
    meaning="How many keys the step lists.",
    better="",
    text=lambda value: f"{value:,.0f}",
    error=False,
)
FINDABLE = Metric(
    keys=("findable",),
    label="keys that could be found",
    meaning="How many keys truly have as many people as one needs at the last step of a period. Not for publication.",
    better="",
    text=lambda value: f"{value:,.0f}",
    error=False,
)
MISSED = Metric(
    keys=("missed",),
    label="share of these that is missed",
    meaning="Of the keys that truly have as many people as one needs at the last step of a period, those beyond "
    "anybody's bound counted too, the share that the step does not list.",
    text=percent,
    error=False,
)
COUNT = Metric(
    keys=("count_error",),
    label="error of listed keys",
    meaning="How far the counts of the listed keys are from how many people truly have these, without signs, over how "
    "many those are.",
    text=percent,
    error=False,
)


SUM = Metric(
    keys=("sum_error",),
    label="error of their sums",
    meaning="How far the sums of listed keys are from what people truly bring, without signs, over all of that. "
    "Of several values that one person brings, where people are counted, their mean is the truth.",
    text=percent,
)


def _counted(stream: Stream) -> str:
    """Say what a key counts."""
    return "people" if stream.pair_events == 1 else "events"


def _domain(stream: Stream) -> str:
    section = KeysDomainSection.from_stream(stream)
    if section.grid is not None:
        grid, (xmin, ymin, xmax, ymax) = section.grid, section.grid.bounds
        return (
            f"{grid.columns:,} times {grid.rows:,} cells of the box from {plain(xmin)} to {plain(xmax)} by {grid.x} "
            f"and from {plain(ymin)} to {plain(ymax)} by {grid.y}, all of them released, each named by its middle."
        )
    if section.sources:
        fields = " and ".join(section.field)
        return f"values of {fields}: {len(section.public_keys):,} keys of a public list, all of them released."
    return (
        f"values of {' and '.join(section.field)}, of at most {section.max_key_bytes:,} bytes together, texts composed "
        "(NFC); nobody lists them beforehand, and which ones are published is a noisy answer too."
    )


def tests_of(steps: int) -> Sequence[int]:
    """Return the tests of a period that are shown, from 1: the first and last ones, and some between.

    >>> tests_of(10), tests_of(1)
    ([1, 2, 5, 10], [1])
    """
    return sorted({1, steps, *(each for each in (2, 5, 10, 20, 50, 100, 200, 500) if each < steps)})


def smallest(found: KeySelection) -> str:
    """Say how many people a key needs, by the step of a period."""
    needed = [f"{ceil(found.threshold(test)):,} at step {test}" for test in tests_of(found.tests)]
    return ", ".join(needed)


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    found = selection(stream)

    def deviation(releases: int) -> float:
        return found.deviation(min(releases, found.tests))

    return ErrorModel(
        (Answer.of("one key", 1, f"{_counted(stream)} of a key that is listed", deviation),),
        sizes="keys",
        growth=f"It grows over the {found.tests:,} steps of a period, and begins anew with the next one",
        formula="sd(j) of the noisy running sum at step j of a period",
        conditions="It is the noise of the count of every key of the public list, in each step; negative counts are "
        "released as 0. What people have beyond max_contributions keys is not in it. privstream simulate measures the "
        "error on your own data."
        if found.public
        else "It is the noise of a count that is listed. The same noise decides which keys are listed: one is "
        "found as soon as its noisy count passes a threshold, and is somewhat too large in that step. What people "
        "have beyond max_contributions keys is not in it. privstream simulate measures the error on your own data.",
        unit=_counted(stream),
    )


def _remarks(stream: Stream) -> Iterator[str]:
    found, options = selection(stream), KeysOptions.from_stream(stream)
    if stream.pair_events == 1:
        yield (
            "One contribution is the first record of a user with a key in a period. A later one with the same key is "
            "counted as REPEATED and charges nobody, so a key counts people, each of them once."
        )
    else:
        yield (
            "One contribution is a user with a key in a period, by the first record. Of such a pair "
            f"{stream.pair_events:,} records count (max_per_key), and further ones are counted as REPEATED and charge "
            "nobody, so a key counts events; least_count and thresholds are of events too."
        )
    yield from _of_values(stream)
    if found.public:
        yield (
            "Each key of the public list is released in every step, also those that nobody has, with a count and its "
            "error. There is no threshold, and all of delta is for the noise, which grows with the root of "
            f"max_contributions and not with the length of the list. {_errors(found)}"
        )
        return
    yield f"The smallest count that can be found: {_smallest(found)}"
    yield (
        f"A key of fewer than least_count = {options.least_count:,} {_counted(stream)} is never listed. Of delta, "
        f"{found.listing_delta:.3g} is the probability that one is listed though one user alone makes it as many."
    )


def _of_values(stream: Stream) -> Iterator[str]:
    """Say what values cost, and the errors of a sum and of a mean."""
    value, found, counted = domain(stream).value, selection(stream), _counted(stream)
    if value is None:
        return
    last, many = found.tests, np.array([100.0])
    of_sum, of_mean = value.errors(many, np.array([value.middle]), found.deviation(last), found.value_deviation(last))
    without = replace(found, value_share=Fraction(0))
    yield (
        f"{value.field} counts between {plain(value.low)} and {plain(value.high)}; values beyond are clipped to these "
        f"limits. Its sums have {found.value_share} of mu^2, which makes the error of counts "
        f"{found.deviation(last) / without.deviation(last):.2f} times what it is without them. At step {last:,} of a "
        f"period a sum has a standard error of {plain(of_sum[0])}, and the mean of 100 {counted} one of about "
        f"{plain(of_mean[0])}, which falls with their number."
    )


def _errors(found: KeySelection) -> str:
    """Say the standard error of a count by the step of a period."""
    errors = ", ".join(f"{plain(found.deviation(test))} at step {test}" for test in tests_of(found.tests))
    return f"The standard error of a count: {errors}."


def _smallest(found: KeySelection) -> str:
    last, whose = found.tests, "people have it" if found.together == 1 else "events are of it"
    sure = ceil(found.threshold(last) + WIDE * found.deviation(last))
    return (
        f"in the {last:,} steps of a period a key is listed with even odds once so many {whose}: "
        f"{smallest(found)}; at the last one nearly surely (95 %) with {sure:,}. It is listed to the period's end."
    )


def _warnings(stream: Stream) -> Iterator[str]:
    found = selection(stream)
    if found.public:
        return
    yield f"the smallest count that can be found: {_smallest(found)}"
    if found.tests > MANY_TESTS:
        fewer = replace(found, tests=FEW_TESTS)
        yield (
            f"{_whole(stream)} has {found.tests:,} steps, each of which tests all keys. With {FEW_TESTS} of them a key "
            f"would need {ceil(fewer.threshold(FEW_TESTS)):,} {_counted(stream)} at the last one, and not "
            f"{ceil(found.threshold(found.tests)):,}. Make time.step longer."
        )


def _whole(stream: Stream) -> str:
    """Name the steps over which keys are counted."""
    return "the stream" if stream.period_steps is None else "a period"


@dataclass(frozen=True, slots=True)
class _Step:
    """The last step: how many people truly have each key, and the records that list some.

    Attributes: needed: people that a key needs at this step; 0 where keys are public. counted: what a key counts.
    """

    true: Mapping[Name, int]
    records: Mapping[Name, Mapping[str, Any]]
    needed: float
    counted: str

    @staticmethod
    def of(stream: Stream, audit: HeldOutAudit) -> _Step:
        evaluator, found, step = audit.evaluator, selection(stream), audit.step - 1
        assert isinstance(evaluator, KeysEvaluator)
        records = {
            name_of(record[name] for name in KeysDomainSection.from_stream(stream).key_fields): record
            for record in audit.alive.values()
            if record["step"] == step
        }
        needed = 0.0 if found.public else found.threshold(step % found.tests + 1)
        return _Step(evaluator.people(audit.truth), records, needed, _counted(stream))


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Return which share of the keys is found by how many people have them, and the error of a listed count."""
    last = _Step.of(stream, audit)
    if selection(stream).public:
        return _judged_counts(last)
    return [_judged_missed(last), *_judged_counts(last)]


def _judged_missed(last: _Step) -> Judged:
    scales = []
    for size in (ceil(times * last.needed) for times in (4, 2, 1)):
        names = {name for name, people in last.true.items() if people >= size}
        if names:
            share = len(names - last.records.keys()) / len(names)
            scales.append(Scale(f"keys of {size:,} {last.counted} or more, of which there are {len(names):,}", share))
    return Judged(
        what="Finding keys",
        scales=scales,
        how=f"The share of the keys that truly have so many {last.counted} at the last step and are not listed; a key "
        f"needs {ceil(last.needed):,} {last.counted} to be found with even odds then.",
        beyond="and more",
        more=f"{len(last.records):,} keys are listed at the last step, of {len(last.true):,} that anybody has.",
    )


def _judged_counts(last: _Step) -> list[Judged]:
    errors = [float(record["count"]) - last.true.get(name, 0) for name, record in last.records.items()]
    if not errors:
        return []
    rms, most = sqrt(sum(error**2 for error in errors) / len(errors)), max(last.true.values(), default=0)
    counts = Judged(
        what="Counts of listed keys",
        scales=[
            Scale(f"keys of {size:,} {last.counted}", rms / size) for size in SIZES if last.needed / 2 <= size <= most
        ],
        how=f"The root of the mean squared error of {len(errors):,} listed counts, {plain(rms)} {last.counted}, as a "
        f"share of the {last.counted} that a key has. People with more keys than max_contributions are in the truth.",
    )
    return [counts]


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Iterator[ReportSection]:
    """Yield the listed keys beside the truth, what a key needs by step, and how many are found over the steps."""
    found, last = selection(stream), _Step.of(stream, audit)
    if last.records:
        which = f", {SHOWN} of {len(last.records):,}" if len(last.records) > SHOWN else ""
        sub = (
            f"In the last step, those with most {last.counted}{which}. The line on a bar is the 90 % interval of its "
            "noise."
        )
        yield ReportSection("Listed keys", sub, [_bars(last)])
    yield from _values_section(stream, audit, last)
    rest = sorted(((people, name) for name, people in last.true.items() if name not in last.records), reverse=True)
    if rest:
        rows = [[_shown(name), f"{people:,}", f"{people - last.needed:+,.0f}"] for people, name in rest[:SHOWN]]
        yield ReportSection(
            "Keys that are not listed",
            f"Those with most {last.counted}. At the last step a key needs {ceil(last.needed):,} for even odds.",
            [Table(["key", f"true {last.counted}", "beyond what it needs"], rows, "The keys as a table")],
        )
    released = [row for row in steps if not row.gathered]
    if released and not found.public:
        needed = [found.threshold(row.step % found.tests + 1) for row in released]
        panel = Panel(
            lines={f"{last.counted} that a key needs": Curve(needed, AMBER)}, what=last.counted, text="{:,.0f}".format
        )
        yield ReportSection(
            "What a key needs to be found",
            f"So many {last.counted} with even odds, by step; it begins anew with each period. By the configuration "
            "alone.",
            [LineChart(x=[row.start for row in released], panels=[panel])],
        )
    if not found.public:
        yield from over_time(
            "Keys over time",
            "Those that are listed, and those that truly have as many people as a key needs at the last step of a "
            "period. With each period all begins anew.",
            {FINDABLE: TRUE, LISTED: SYNTHETIC},
            steps,
            what="keys",
        )
    yield from over_time(
        "Error of the counts over time",
        "Of listed keys, as a share of the people who truly have them. Less is better.",
        {COUNT: BLUE},
        steps,
        what="relative error",
    )


def _values_section(stream: Stream, audit: HeldOutAudit, last: _Step) -> Iterator[ReportSection]:
    """Yield the sums and means of the listed keys with most people, beside true sums."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, KeysEvaluator)
    if evaluator.value is None or not last.records:
        return
    true = evaluator.sums(audit.truth)
    shown = sorted(last.records.items(), key=lambda each: -each[1]["count"])[:SHOWN]
    rows = [
        [_shown(name), plain(true.get(name, 0.0)), *(f"{plain(r[k])} ± {plain(WIDE * r[f'{k}_error'])}" for k in KINDS)]
        for name, r in shown
    ]
    field = evaluator.value.field
    head = ["key", f"true sum of {field}", "published sum, with its 90 % interval", "published mean"]
    yield ReportSection(
        f"Sums of {field}", "Of the keys above, in the last step.", [Table(head, rows, f"Sums of {field} as a table")]
    )


def _shown(name: Name) -> str:
    """Return a key as text that can be drawn, whatever is in it."""
    return ", ".join(value_text(read(part)) for part in name)


def _bars(last: _Step) -> Chart:
    shown = sorted(last.records.items(), key=lambda each: -each[1]["count"])[:SHOWN]
    names = [_shown(name) for name, _ in shown]
    true = np.array([last.true.get(name, 0) for name, _ in shown], np.float64)
    counts = np.array([record["count"] for _, record in shown], np.float64)
    reach = WIDE * np.array([record["error"] for _, record in shown], np.float64)
    rows = [
        [name, written(t), f"{m:,.0f} ± {r:,.0f}", f"{m - t:+,.0f}", f"{record['found']}"]
        for name, t, m, r, (_, record) in zip(names, true.tolist(), counts.tolist(), reach.tolist(), shown, strict=True)
    ]
    said = "; ".join(f"{row[0]} {row[1]} and {row[2]}" for row in rows[:8])
    return BarChart(
        names=names,
        series={"true (private)": true, RELEASED: counts},
        reach={RELEASED: reach},
        what=f"{last.counted} of a key",
        alt=f"Bars of the {last.counted} of a key, true and as it is published: {said}",
        table=Table(["key", "true", "published, with its 90 % interval", "difference", "found in step"], rows),
    )


def _metrics(stream: Stream) -> Sequence[Metric]:
    sums = [] if domain(stream).value is None else [SUM]
    return [ERROR, COUNT, *sums] if selection(stream).public else [ERROR, MISSED, COUNT, *sums, LISTED, FINDABLE]


VIEW = View(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=_metrics,
    judged=judged,
    events=lambda stream: "new pairs of user and key",
    records=lambda stream: "records of listed keys",
    error_unit="%",
    remarks=_remarks,
    warnings=_warnings,
    picture=lambda stream: KeyPicture(
        KeysDomainSection.from_stream(stream).key_fields, count="count", error="error", found="found"
    ),
)
