"""The sentences of an explanation, from a configuration: what is promised, what is public, what is not protected."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist

from agents.show.explain.parts import Budget, Point, decimal, exact, price_words
from agents.show.view import view_of
from engines.core.accounting import gaussian
from engines.core.accounting.streams import StreamCost, price_of_periods, rounded_up
from engines.core.accounting.user_level import group_delta
from schemas.config import Stream, format_duration, format_length
from schemas.config.privacy import Privacy
from schemas.config.records import WEIGHT
from schemas.guarantee import Guarantee, format_percent, max_posterior
from schemas.steps import CalendarLength, Length
from schemas.topics import Topics


def promise(stream: Stream) -> str:
    """Return who is protected, against what, at what price, from the configuration alone; of a part, what others add.

    A sliding window as long as an aligned period can touch two of them.
    """
    if (part := stream.part) is None:
        return _promise(stream)
    count = len(part.parts)
    if stream.privacy.unit == "event":
        return f"{_promise(stream)} An event is in one of the {count} parts of {part.whole} at most."
    return f"{_promise(stream)} That is ONE of {count} parts of {part.whole}: a user may be in all, and pays in each."


def _promise(stream: Stream) -> str:
    privacy = stream.privacy
    price = f"epsilon = {_plain(privacy.epsilon)}" + (f", delta = {privacy.delta:g}" if privacy.delta else "")
    if privacy.unit == "event":
        return (
            f"Single events are protected, NOT people: whether any one event was there is hidden with {price} over the "
            f"whole stream; somebody with k events is hidden with {several(privacy)}."
        )
    if privacy.bounds_users:
        more = "" if privacy.max_contributions == 1 else "s"
        events = f"at most {privacy.max_contributions} {stream.contribution}{more}"
        if privacy.max_per_step:
            events += f", {privacy.max_per_step} a step"
        who = f"Everything that one user (field {privacy.user}) contributes, {events}"
    else:
        who = "Everything that one user contributes to readings that somebody else aggregated, in every step"
    if privacy.per is None:
        return f"{who} in the whole life of the stream, is hidden with {price}."
    window = price_of_periods(StreamCost.from_stream(stream), 2)
    return (
        f"{who} in each aligned period of {format_length(privacy.per)}, is hidden with {price} a period: "
        f"{price_words(window)} over any {format_length(privacy.per)} in a row, and adding up from period to period."
    )


def several(privacy: Privacy) -> str:
    """Return what k changes together are promised, where a unit is one. Deltas of a group grow faster than its size."""
    if not privacy.delta:
        return "k times epsilon"
    two = rounded_up(group_delta(float(privacy.epsilon), privacy.delta, 2))
    return (
        f"k times epsilon and (e^(k epsilon) - 1)/(e^epsilon - 1) times delta, which is more than k times ({two:g} for "
        "k = 2)"
    )


def record_time(stream: Stream) -> str:
    """Return what the time of a synthetic record says, and whether records may be counted by it."""
    field = stream.time.field
    if stream.record_times is None:
        return f"The {field} of a synthetic record is the begin of the step that it stands for."
    if stream.record_times == "dated":
        return (
            f"The {field} of a synthetic record is the begin of the step whose events it stands for, as far as that "
            "was measured: records may be counted by it, for a trend."
        )
    undatable = stream.domain.deletion_key is not None or stream.weighted
    other = "the ledger or the measurements show it" if undatable else 'leave records = "released" out'
    return (
        f"The {field} of a synthetic record is the begin of the step that released it, NOT when its events were: do "
        f"not count records by it. For a trend, {other} (docs/time.md)."
    )


def record_form(stream: Stream) -> str:
    """Return what a weighted record stands for, and that it costs nothing."""
    return (
        f"A synthetic record stands for as many events as its {WEIGHT} says: a count is the sum of weights. It is made "
        "of what is released anyhow, by post-processing: with the same noise, and at no further epsilon."
    )


def step_warning(stream: Stream) -> str | None:
    """Return a sentence where steps of whole days of 24 hours do not stay at their place in the day; None elsewhere."""
    time = stream.time
    if not isinstance(time.step, timedelta) or time.step % timedelta(days=1):
        return None
    start = datetime(2025, 1, 1) if time.start == "now" else datetime.fromisoformat(time.start)
    begin = start.replace(tzinfo=time.zone).astimezone(UTC)
    unit, number = ("week", 7) if time.step % timedelta(days=7) == timedelta(0) else ("day", 1)
    for step in range(1, 1 + timedelta(days=400) // time.step):
        at = (begin + step * time.step).astimezone(time.zone)
        if at.time() != start.time():
            calendar = CalendarLength(time.step // timedelta(days=number), "week" if unit == "week" else "day")
            when = "when clocks have changed" if time.start == "now" else f"on {at:%Y-%m-%d}, when clocks have changed,"
            return (
                f"step = {format_length(time.step)} is a duration: {when} a step begins at {at:%H:%M} {time.timezone}. "
                f'In a new stream, step = "{calendar}" goes by the calendar; this one stays as it is.'
            )
    return None


def unit_of(stream: Stream) -> str:
    """Return what is protected, in words."""
    privacy = stream.privacy
    if privacy.unit == "event":
        return "one single event, NOT a person"
    if privacy.unit == "replace":
        period = "" if privacy.per is None else f" in one aligned period of {format_length(privacy.per)}"
        return f"one member (field {privacy.user}) of a fixed public population{period}: where they were in every step"
    who = f"one user (field {privacy.user})" if privacy.bounds_users else "one user, in every reading"
    if privacy.per is None:
        return f"{who}: all that the user contributes, for ever"
    return f"{who} in one aligned period of {format_length(privacy.per)}{_registry_word(privacy.per)}"


_DURATIONS = {timedelta(hours=1): "hour", timedelta(days=1): "day", timedelta(days=7): "week"}


def _registry_word(per: Length) -> str:
    """Return the unit as registries of deployments call it, where they have a word: user-day, user-month."""
    word = (per.unit if per.number == 1 else None) if isinstance(per, CalendarLength) else _DURATIONS.get(per)
    return f" (a user-{word})" if word else ""


def neighbours_of(stream: Stream, guarantee: Guarantee) -> str:
    """Return which two inputs must be hard to tell apart."""
    if not stream.domain.names_user:
        return _neighbouring_readings(stream)
    single = stream.privacy.unit == "event"
    who = "one event" if single else "the records of one user"
    if stream.privacy.per is not None:
        who += f" that join steps of one aligned period of {format_length(stream.privacy.per)}"
    how = "there or not (add or remove)" if guarantee.neighbouring == "add_remove" else "replaced by another"
    how = f"{'is' if single else 'are'} {how}"
    return (
        f"two inputs that differ in whether {who} {how}; everybody else's records, their positions in the source "
        "topic, their arrival times and the ticks among them are the same in both"
    )


def _neighbouring_readings(stream: Stream) -> str:
    """Return the neighbours of sums that name no user: they differ in their values only."""
    where = "in every step"
    if stream.privacy.per is not None:
        where += f" of one aligned period of {format_length(stream.privacy.per)}"
    return (
        f"two inputs with the same readings at the same positions, but that each value may differ {where} by what is "
        "declared as the sensitivity of its field; how many readings come, and when, is the same in both"
    )


def plain(stream: Stream, budget: Budget) -> tuple[str, ...]:
    """Return the guarantee without symbols."""
    sure = max_posterior(float(budget.unit_epsilon))
    whom = (
        "whether any one event is in the data"
        if stream.privacy.unit == "event"
        else "which of two histories any one member has"
        if stream.privacy.unit == "replace"
        else "whether any one user is in the data"
    )
    again = "" if stream.privacy.per is None else " in one period"
    lines = [
        promise(stream),
        "Somebody who sees every public topic of this stream, has unlimited computing power short of breaking "
        f"SHAKE-256, knows everybody else's data and held {whom}{again} for an even chance before, can be at most "
        f"{format_percent(sure)} sure afterwards{_but_for(budget)}.",
    ]
    if budget.contributions > 1:
        lines.append(
            f"One unit may make {budget.contributions} changes, so each {stream.contribution} runs at epsilon / "
            f"{budget.contributions} = {exact(budget.event_epsilon)}. {stream.contribution.capitalize()}s beyond that "
            f"are refused and counted, {_beyond(stream)}."
        )
    elif stream.whole_unit and not stream.facts.whole_unit and stream.changes > 1:
        lines.append(
            f"One unit may make {stream.changes} changes, and the noise is for all of them together: (epsilon, delta) "
            f"cannot be divided by {stream.changes}. {stream.contribution.capitalize()}s beyond that are refused and "
            "counted, never used."
        )
    if stream.domain.lifetime is not None:
        lines.append(
            f"Each insert is gone after {format_length(stream.domain.lifetime)} by itself"
            + (
                f"; that expiry is measured like a delete, so an insert costs {stream.insert_charge} contributions."
                if stream.insert_charge > 1
                else ", worked out from what was released before: it costs nothing more."
            )
        )
    return tuple(lines)


def _beyond(stream: Stream) -> str:
    """Return what becomes of events beyond the bound."""
    if not stream.surplus:
        return "never used"
    return (
        f"never used as such: how many there are, up to {stream.surplus:,} of a user, is measured for a tenth of "
        "epsilon, and releases are scaled up by it, as if they lay where the others do; what a user does beyond that "
        "is in no release"
    )


def _but_for(budget: Budget) -> str:
    """Return how often somebody becomes surer than epsilon says: with Gaussian noise delta is not that chance."""
    if not budget.delta:
        return ""
    epsilon = float(budget.unit_epsilon)
    mu = gaussian.mu_for(epsilon, budget.noise_delta)
    surer = NormalDist().cdf(mu / 2 - epsilon / mu) + budget.thresholds
    return f", but for a chance of {surer:.1g} (delta, {budget.delta:g}, is what that is worth, not how often it is)"


def symbols(stream: Stream, guarantee: Guarantee, budget: Budget) -> tuple[str, ...]:
    """Return the guarantee in symbols."""
    epsilon, delta, cost = exact(budget.unit_epsilon), budget.delta, StreamCost.from_stream(stream)
    over = (
        "all steps together" if stream.privacy.per is None else "all steps together, D and D' differing in one period"
    )
    lines = [
        "Pr[M(D) ∈ S] ≤ exp(ε) · Pr[M(D') ∈ S]"
        + (f" + {delta:g}" if delta else "")
        + f"  for every S and all D ~ D', ε = {epsilon}",
        f"M(D) = every record of the public topics, {over}",
        "D ~ D' : " + neighbours_of(stream, guarantee),
    ]
    if budget.mu_squared is not None:
        lines.append(
            f"μ² of the unit, {stream.changes} {stream.contribution}{'s' if stream.changes > 1 else ''} together = "
            f"{budget.terms + ' = ' if len(budget.shares) > 1 else ''}{decimal(float(budget.mu_squared))};  "
            f"δ(ε) = Φ(-ε/μ + μ/2) - exp(ε) Φ(-ε/μ - μ/2){f' + {budget.thresholds:.3g}' if budget.thresholds else ''}"
        )
    else:
        lines.append(f"ε of one {stream.contribution} = {budget.terms} = {budget.event_epsilon}")
        lines.append(f"ε of the unit = {budget.contributions} · {budget.event_epsilon} = {budget.unit_epsilon}")
    if stream.privacy.per is not None:
        several = "k periods: kε"
        if delta:
            several = (
                f"k periods: {'√k μ' if cost.apart else 'kμ'}-Gaussian DP" if cost.gaussian else "k periods: kε and kδ"
            )
            if cost.thresholds:
                several += f", but for k times {cost.threshold_delta(1):.3g}, that a threshold fails"
        lines.append(
            f"any {format_length(stream.privacy.per)} in a row touch two periods: "
            f"{price_words(price_of_periods(cost, 2))};  {several}, without bound"
        )
    return tuple(lines)


def _plain(number: Decimal) -> str:
    """Return all digits of a decimal, without an exponent and without zeros at its end; `normalize` would round it."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _by_the_calendar(per: Length) -> str:
    """Return what is to be known of periods whose length is not always the same."""
    if not isinstance(per, CalendarLength):
        return ""
    return " (from a moment to the same one a period later; a time as long as the longest period can be in three)"


def alerts(stream: Stream) -> Iterator[str]:
    """Yield what must not be overlooked."""
    privacy = stream.privacy
    if privacy.unit == "event":
        more = " An insert and its later delete are two events." if stream.domain.operation_field is not None else ""
        yield (
            'unit = "event": single events are protected, NOT PEOPLE. Somebody with k events is protected with '
            f'{several(privacy)}, and nothing bounds k.{more} Where the data has a user id, set unit = "user".'
        )
    if privacy.per is not None:
        period, window = format_length(privacy.per), price_of_periods(StreamCost.from_stream(stream), 2)
        yield (
            f"The bound renews every {period}: epsilon = {exact(privacy.epsilon_fraction)} for what a user contributes "
            f"in one aligned period, {price_words(window)} in any {period} "
            f"in a row{_by_the_calendar(privacy.per)}, and NO BOUND over a lifetime: it grows from period to period. "
            "An event counts where it joins a step: what comes late is of the period in which it comes, not of that in "
            "which it happened."
        )
    for told in (stream.privacy.delta_warning, stream.privacy.epsilon_warning):
        if told is not None:
            yield told
    if (
        stream.domain.lifetime is not None
        and stream.privacy.unit == "user"
        and stream.contributions % stream.insert_charge
    ):
        yield (
            f"max_contributions = {stream.contributions} is odd and an insert costs {stream.insert_charge}: one "
            f"contribution can never be used. Write {stream.contributions - 1} or {stream.contributions + 1}."
        )


def _lasts(stream: Stream) -> str:
    """Return how long a step is."""
    step = format_length(stream.time.step)
    if isinstance(stream.time.step, timedelta):
        return f"a step lasts {step}"
    return (
        f"a step is {step} of the calendar in {stream.time.timezone}, so steps have unequal lengths; which time each "
        "covers is known beforehand, and stays as it was when the stream was started"
    )


def _output(stream: Stream) -> str:
    kind = "Avro" if stream.output.format == "avro" else "JSON Schema"
    return (
        f"Synthetic records are written for the deserializers of a schema registry, with the {kind} that is registered "
        f"as {Topics.synthetic(stream.name)}-value when the stream is first started; its id is part of every record "
        "and does not change. Measurements and the ledger are plain JSON. How records are written costs no privacy."
    )


def public(stream: Stream) -> Iterator[Point]:
    """Yield what the proof takes for known to everybody."""
    time = stream.time
    start = 'when the stream is first started ("now")' if time.start == "now" else f"at {time.start} {time.timezone}"
    when = (
        f"at the end of the step + {format_duration(time.grace)} (grace) + {format_duration(stream.publish_delay)} "
        "(publish_delay)"
        if time.clock == "wall"
        else "when the ticks of the replay have closed it; once that has gone live (privstream replay --then-live), at "
        f"the end of the step + {format_duration(time.grace)} (grace) + {format_duration(stream.publish_delay)} "
        "(publish_delay)"
    )
    yield Point(
        "steps and ticks",
        f"Step 0 begins {start}; {_lasts(stream)}; every step is released, empty ones too, {when}. Where a tick stands "
        "among the records of a partition is part of the public input.",
    )
    if (mapping := stream.map) is not None:
        computed = "; ".join(f"{name} = {text}" for name, text in mapping.fields.items())
        left_out = f" Records of which {mapping.drop} are left out." if mapping.drop else ""
        tables = "".join(
            f" The table {name} is the file with SHA-256 {file.sha256}." for name, file in mapping.tables.items()
        )
        yield Point(
            "how fields are computed",
            f"From each record by itself: {computed or 'none is'}.{left_out}{tables} What a record gives depends on no "
            "other record, so whose an event is, and that it is one, is the record's own.",
        )
    if stream.output.typed:
        yield Point("how records are written", _output(stream))
    yield Point("domain and bounds", f"{view_of(stream).domain(stream)} {stream.domain.outside}")
    privacy = stream.privacy
    bounds = [f"epsilon = {exact(privacy.epsilon_fraction)}", f"unit = {privacy.unit}"]
    bounds += [f"max_contributions = {privacy.max_contributions}"] if privacy.max_contributions else []
    bounds += [f"max_per_step = {privacy.max_per_step}"] if privacy.max_per_step else []
    yield Point("privacy settings", ", ".join(bounds) + ": knowing them helps nobody.")
    unused = stream.options.without_effect(stream.mode)
    told = [f"{name} = {_value(v)}" for name, v in stream.options.fingerprint_fields().items() if name not in unused]
    options = ", ".join(told)
    yield Point("engine and its options", f"{stream.engine}, mode {stream.mode}; {options}; and the source code.")
    yield Point(
        "where others' records stand",
        "Positions and arrival times of everybody else's records in the source topic: they do not move when one "
        "user's records go.",
    )
    yield Point(
        "what follows from releases",
        f"The places of synthetic points (a fixed function of released counts and of the name {stream.name}), "
        "consistency, non-negativity, thresholds, which cells are remembered: post-processing, which costs nothing.",
    )


def unprotected(stream: Stream, *, job: str) -> Iterator[Point]:
    """Yield what the guarantee does not cover."""
    privacy, topics = stream.privacy, Topics(job, 1)
    if privacy.unit == "event":
        yield Point(
            "people", "Only single events are protected. Nothing bounds how many of them one person has.", loud=True
        )
    if privacy.per is not None:
        yield Point(
            "a lifetime",
            f"The bound renews every {format_length(privacy.per)}: what is known of somebody in each period adds up.",
            loud=True,
        )
    if privacy.bounds_users:
        yield Point(
            "users with several ids",
            f"The bound holds for each value of {privacy.user}. Somebody with k ids is protected with "
            f"{several(privacy)}, and a family that moves together like one person with as many "
            f"{stream.contribution}s.",
        )
        yield _partitioner(stream)
    yield Point(
        "other streams, and this one under another name",
        "Every stream that sees the same people costs its own epsilon on top: of this job, of other jobs, and one that "
        "was started anew under another name. Streams of this file that add up are listed; nobody can list the others.",
    )
    yield Point(
        "a cluster that is put back to yesterday",
        "Topics that are put back, all of them, to before the last answered step are noticed by the witness, if it was "
        "not put back with them: [job] witness outside the cluster, for all workers; without that key the data_dir of "
        "each, by a worker that has kept it. What nobody notices is answered again, at its epsilon.",
    )
    yield Point(
        "the timing of Kafka itself",
        "When the job's clients talk to the brokers, how much they read, whether a publication is late: visible to "
        "whoever watches "
        "the network or the cluster. Public records themselves carry the end of their step as their time.",
    )
    audit = (
        f"the job compares with {stream.audit}" if stream.audit else "there is none now: no audit topic is configured"
    )
    yield Point(
        "the operator's view",
        f"{Topics.utility(stream.name)} holds the true error ({audit}): for operators only. So are metrics, lag, "
        f"{topics.dead_letters}, privstream status and everything that privstream simulate and tune write.",
    )
    routed = f"{topics.routed(stream.name)} (raw records, until they are in blocks), " if stream.routed else ""
    yield Point(
        "the raw topic and the job's private topics",
        f"{stream.source}, {routed}{topics.blocks}, {topics.releases}, {topics.bounds} and the state folders are as "
        "sensitive as the raw data: blocks hold exact counts, the release log holds the seeds of the noise. Who reads "
        "them is "
        "protected by nothing here.",
    )
    if stream.time.clock == "replay":
        yield Point(
            "the ticks of a replay",
            "privstream replay places ticks by the times in its file: without --until, the end of the file is taken as "
            "public, and so is the moment at which --then-live has come to its end.",
            loud=True,
        )
    yield Point(
        "what is true of people in general",
        "That people who do X tend to do Y is what the stream is for. It may be said of somebody whether or not their "
        "data is in it.",
    )


def _partitioner(stream: Stream) -> Point:
    user = stream.privacy.user
    if stream.routed:
        return Point(
            'partitioner = "any"',
            f"Each partition bounds its own users, so the job copies each record to where murmur2 of its {user} puts "
            "it, in a topic of its own, whatever partition its producer chose. How fast it does so decides, among "
            "records at the end of a step, which join it and which the next: timing, which is not covered.",
        )
    if stream.checks_partition:
        return Point(
            "records on the wrong partition",
            f"Each partition bounds its own users. A record that is not where {stream.partitioner} of its {user} puts "
            "it is refused, so nobody gets the bound twice. Java and aiokafka place keys by murmur2, kcat, "
            "confluent-kafka and all of librdkafka by crc32, unless they are told otherwise.",
        )
    return Point(
        'partitioner = "none"',
        f"Nobody checks that all records of a {user} are on one partition, and each partition keeps bounds of its "
        "own. So the job "
        "refuses to run on a source topic of more than one partition; adding partitions later stops the stream.",
        loud=True,
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def spent(fraction: Fraction) -> str:
    """Return a share of the whole as a percentage."""
    return f"{decimal(float(fraction) * 100)} %"
