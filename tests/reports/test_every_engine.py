"""The report of every engine: a verdict, pictures that have words, and no name of a figure that nobody explains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from agents.local.offline.simulate import simulate
from agents.show.explain.parts import Roads
from agents.show.report import WARNING
from agents.show.view import RULE, metrics_of, view_of
from engines.checks.contract_case import contract_case
from engines.core.registry import build_evaluator
from schemas.config import ENGINES, Stream, load_config
from tests.reports.made import EXAMPLES, ONE_AN_HOUR, Page, simulated, stream_of

pytestmark = [pytest.mark.seconds(1), pytest.mark.usefixtures("drawn")]


def kinds() -> Iterator[tuple[str, str, int]]:
    """Engine, kind of domain and the first variant of its contract case that has it."""
    for engine in sorted(ENGINES):
        found: dict[str, int] = {}
        for index, variant in enumerate(contract_case(engine).variants):
            domain = stream_of(engine, variant).domain
            found.setdefault(f"{domain.kind}{'-lines' * ('reach_m' in variant.get('domain', {}))}", index)
        yield from ((engine, kind, index) for kind, index in found.items())


KINDS = [pytest.param(engine, index, id=f"{engine}-{kind}") for engine, kind, index in kinds()]
"""A stream of every engine, and of every kind of domain that it has."""


def streams() -> Iterator[Stream]:
    for engine in sorted(ENGINES):
        for mode in ENGINES[engine].facts.modes:
            for variant in contract_case(engine).tried(mode):
                yield contract_case(engine).stream(mode, variant)
    for path in sorted(EXAMPLES.glob("*.toml")):
        yield from load_config(path, {"PRIVSTREAM_USER_KEY_FILE": ""}, offline=True).streams


def test_every_figure_of_every_stream_is_declared_with_a_meaning() -> None:
    """By construction: a metric that an evaluator gives and a view does not explain is found here."""
    for stream in streams():
        declared = view_of(stream).metrics(stream)
        explained = {key for metric in declared for key in metric.keys}
        assert set(build_evaluator(stream).metrics) <= explained, stream.engine
        for metric in declared:
            assert set(metric.keys) <= set(build_evaluator(stream).metrics)
            assert len(metric.meaning) > 15, metric.name
            assert metric.name not in metric.keys, f"{metric.name} is a key and no words"
        names = [metric.name for metric in declared]
        assert len(set(names)) == len(names)


def test_two_roads_to_a_promise_are_compared_where_the_stream_could_take_both() -> None:
    """A surplus is counted under pure epsilon only: once `explain` ended there with a defect of privstream."""
    for stream in streams():
        roads = Roads.of(stream)
        assert roads is None or not (stream.surplus or stream.needs_delta)


@pytest.mark.parametrize(("engine", "index"), KINDS)
def test_the_report(engine: str, index: int, tmp_path: Path) -> None:
    stream = stream_of(engine, contract_case(engine).variants[index])
    done = simulated(stream, tmp_path)
    content = (tmp_path / "out" / "report.html").read_text()
    page = Page(content)

    assert page.text.removeprefix(f" {stream.name}: simulation, not private ").startswith(WARNING)
    assert "Verdict" in page.text[: len(WARNING) + 600]
    assert done.verdict
    for sentence in done.verdict:
        assert all(part in page.text for part in sentence.split(". ")[:1])
        assert any(word in sentence for word in ("good", "rough", "nothing to compare")), sentence
        assert sentence[0].isupper(), "what is judged has a name"
        assert "does not say" not in sentence, "an engine of this distribution says what its releases are good for"
    assert RULE in page.text

    assert page.pictures >= 2
    assert page.pictures == len(page.alts)
    assert all(len(alt) > 40 and alt != "plot" for alt in page.alts)
    assert len(set(page.alts)) == len(page.alts)
    assert page.tables >= page.pictures / 3

    metrics = metrics_of(stream)
    for metric in metrics:
        assert metric.meaning in page.terms[metric.name]
        assert all(key in page.terms[metric.name] for key in metric.keys)
        assert not metric.tile or metric.explained in page.titles, "a tile is explained where it stands"
    before_glossary = page.text[: page.text.index("What the words mean")]
    keys = {key for metric in metrics for key in metric.keys if "_" in key}
    assert not [key for key in keys if key in before_glossary]
    assert len(content) < 1_000_000


def test_values_that_were_found_have_their_names_and_the_others_are_said(tmp_path: Path) -> None:
    """Of a table with an attribute whose values nobody listed. What cannot be shown of a name is a sign for that."""
    document = stream_of("tabular", contract_case("tabular").of_default[0]).model_dump(mode="json", exclude_none=True)
    page = {"field": "page", "values": "discover", "max_key_bytes": 8, "least_count": 1}
    document["domain"]["attributes"] = [{"field": "smokes", "values": [False, True]}, page]
    rows = [
        {"u": f"u{n}", "t": ONE_AN_HOUR + 3600 * (n // 200), "smokes": n % 2 == 0, "drives": n % 3 == 0, "page": page}
        for n, page in enumerate(["often", "s\x1bo", "often", "once"] * 300)
    ]
    for number, row in enumerate(rows[3::4]):
        row["page"] = f"rare{number % 30}"
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    config = load_config(EXAMPLES / "taxi.toml").model_copy(update={"streams": (Stream.model_validate(document),)})
    simulate(config, tmp_path / "rows.jsonl", tmp_path / "out", seed=3)
    text = Page((tmp_path / "out" / "report.html").read_text()).text
    assert "Of page 2 values are found, of 64 at most" in text
    assert 'All others are "other": 30 values with 300 true rows' in text
    assert "Those with most true rows that are not foundvaluetrue rowsrare010rare110" in text
    values = text[text.index("All values as a table") :]
    assert "pageother300" in values
    assert "pageoften600" in values
    assert "pages\ufffdo300" in values


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_stream_of_which_nothing_can_be_used_has_a_page_that_says_so(engine: str, tmp_path: Path) -> None:
    stream = stream_of(engine, contract_case(engine).variants[0])
    done = simulated(stream, tmp_path, steps=2, usable=False)
    page = Page((tmp_path / "out" / "report.html").read_text())
    if done.refused_share:
        assert "100% refused" in page.text[: page.text.index("Verdict")]
    assert not any("does not say" in sentence for sentence in done.verdict)


def test_what_comes_in_and_goes_out_has_the_engine_s_own_words(tmp_path: Path) -> None:
    """No "events alive 1" of a series: what is counted of a step is not what lives."""
    stream = load_config(EXAMPLES / "departures.toml").streams[0]
    show = view_of(stream)
    assert (show.events(stream), show.records(stream)) == ("readings", "released values")
    for engine in sorted(ENGINES):
        stream = stream_of(engine, contract_case(engine).variants[0])
        assert view_of(stream).records(stream) != "synthetic records"


def test_errors_that_are_read_in_percent_are_drawn_in_percent() -> None:
    """On the live page and by `tune`, as in the report: once 0.00528 there was 0.53 % here."""
    for engine in ENGINES:
        stream = stream_of(engine, contract_case(engine).variants[0])
        texts = {metric.text(0.25) for metric in metrics_of(stream) if metric.error}
        assert (view_of(stream).error_unit == "%") == (texts == {"25 %"}), (engine, texts)
