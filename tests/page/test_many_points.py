"""A million points: the page has all of them, each frame counts them anew, and how many frames a second that is.

The number is measured and told, not asserted: it is the machine's. That every frame counts every point is asserted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

from agents.protocol.release.public_records import ledger_entry
from agents.readers.watch import serve
from agents.readers.watch.public import PublicReader, StreamSeen
from engines.core.contract import Release
from engines.core.registry import build_engine
from schemas.config.load import config_from_mapping
from schemas.releases import GENESIS, sha256
from tests.kafka.support import stream_table
from tests.page.chromium import LEVELS, Console, chromium, executable, opened, until
from tests.page.figures import note

POINTS, STEPS = 1_000_000, 10
# A second each of moving, zooming and going through time; each frame counts all points of its step into the screen.
FRAMES = """async () => {
  const view = privstream.page.picture, map = view.map, times = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const during = async (act) => {
    let frames = 0, counted = 0;
    const began = performance.now();
    while (performance.now() - began < 1000) { act(frames++); counted += view.counted; await frame(); }
    return { fps: frames / ((performance.now() - began) / 1000), counted: counted / frames };
  };
  const zoom = map.getZoom();
  const moved = await during((n) => map.panBy([n % 2 ? 9 : -9, n % 2 ? -6 : 6], { animate: false }));
  const zoomed = await during((n) => map.setZoom(zoom + (n % 3) / 4, { animate: false }));
  map.setZoom(zoom, { animate: false });
  const played = await during((n) => privstream.page.seek(n % 2 ? 9 : 8));
  return { moved, zoomed, played, took: view.took };
}"""


@pytest.mark.page
@pytest.mark.slow
@pytest.mark.seconds(20)
def test_a_million_points_are_all_counted_in_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    executable()
    table = {**stream_table("many"), "privacy": {"epsilon": 1.0, "unit": "event"}}
    config = config_from_mapping(
        {"job": {"name": "j", "data_dir": "unused"}, "kafka": {"bootstrap": "127.0.0.1:1"}, "streams": [table]}
    )

    async def filled(reader: Any) -> None:
        """Instead of a topic with a million records, which takes a broker a minute: what its reader would hand on."""
        (seen,) = reader._streams
        _fill(seen)
        reader.problem = None
        await asyncio.Event().wait()

    monkeypatch.setattr(PublicReader, "run", filled)
    console = Console()

    async def run() -> dict[str, Any]:
        async with serve(config, operator=False) as served, chromium() as browser:
            page = await opened(browser, console, served.public)
            await until(page, f"globalThis.privstream?.page.picture.counted === {POINTS}")
            assert f"Shows {POINTS:,} of {POINTS:,} points" in await page.inner_text("#stream")
            found: dict[str, Any] = await page.evaluate(FRAMES)
            assert console.errors == []
            await _faults_are_seen(page, console)
            return found

    found = asyncio.run(run())
    assert found["moved"]["counted"] > POINTS / 2
    assert found["played"]["counted"] == pytest.approx(POINTS * (STEPS - 0.5) / STEPS, rel=0.02)
    mean = sum(found[name]["fps"] for name in ("moved", "zoomed", "played")) / 3
    note(pages=console.pages, errors=0, fps_at_1e6=mean)


async def _faults_are_seen(page: Page, console: Console) -> None:
    """What the tests of the page rest on: errors on the console, or that nobody caught; a slider without a name."""
    await page.evaluate("console.error('planted'); setTimeout(() => { throw new Error('planted'); })")
    async with asyncio.timeout(20):
        while len(console.errors) < 2:  # noqa: ASYNC110  the browser tells when it does
            await asyncio.sleep(0.05)
    assert {error.partition(":")[0] for error in console.errors} == {"error", "uncaught"}
    await page.evaluate("document.getElementById('time').removeAttribute('aria-label')")
    found = await Axe().run(page, options=LEVELS)
    assert [each["id"] for each in found.response["violations"]] == ["label"]


def _fill(seen: StreamSeen) -> None:
    chance = np.random.default_rng(7)
    chain, stream = GENESIS, seen.stream
    guarantee = build_engine(stream).guarantee()
    middles = chance.random((40, 2))
    each = POINTS // STEPS
    places = iter(range(0, 1 << 62, (1 << 62) // POINTS))
    for step in range(STEPS):
        xy = np.clip(middles[chance.integers(0, 40, each)] + chance.normal(0, 0.05, (each, 2)), 0, 0.999)
        for (x, y), place in zip(xy.tolist(), places, strict=False):
            seen.picture.put(step, place, x, y)  # type: ignore[attr-defined]
        release = Release(step, [], [], [], each * (step + 1))
        words, chain = ledger_entry(
            release,
            stream,
            guarantee,
            spent=guarantee.epsilon,
            start_us=step,
            end_us=step + 1,
            digest=sha256(b""),
            previous_chain=chain,
            draw="00" * 16,
        )
        assert orjson.loads(words)["chain"] == chain
        seen.take("ledger", step, b"%d" % step, words)
    seen.settle(0.0, STEPS)
