"""The live page as a person sees it: a real broker, a worker and the page's server as processes, a headless Chromium.

The worker and the page's server are killed while the page is open; it goes on by itself, and says so meanwhile.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from PIL import Image
from playwright.async_api import Browser, Page

from tests.page.chromium import LEVELS, PHONE, Console, chromium, executable, opened, until
from tests.page.figures import images, note
from tests.page.job import PageJob, addresses, kill

STEP = "Number(document.querySelector('#stream [data-step]')?.dataset.step ?? -1)"
VERIFIED = "digests verified"


@pytest.mark.kafka
@pytest.mark.page
@pytest.mark.slow
@pytest.mark.seconds(45)
def test_the_page_shows_every_engine_and_goes_on_after_everything_was_killed(bootstrap: str, tmp_path: Path) -> None:
    executable()
    console, job = Console(), PageJob.of(bootstrap, tmp_path)
    try:
        reconnects = asyncio.run(_live(job, console))
    except BaseException:
        print(console.errors, job.log("run")[-4000:], job.log("watch")[-2000:], sep="\n")
        raise
    assert console.errors == []
    note(pages=console.pages, errors=len(console.errors), reconnects=reconnects)


async def _live(job: PageJob, console: Console) -> int:
    token = ("--json", "--token-file", str(job.path.parent / "token"))
    await job.create()
    with job.process("run") as worker, job.process("watch", "--port", "0", *token) as first:
        played = asyncio.create_task(job.play(0))
        async with chromium() as browser:
            at = await addresses(first)
            public = await opened(browser, console, at["public"])
            operator = await opened(browser, console, at["operator"])
            await played
            taxi = job.names["taxi"]
            await until(public, f"{STEP} >= 2")
            await _worker_is_killed(job, worker, public)
            with job.process("run"):
                closed = await job.play(1)
                await until(public, f"{STEP} === {closed[taxi]}")
                reconnects = 1
                await _each_stream(job, public, closed)
                await _the_operator(job, operator)
                await _views_of_others(browser, console, job, at)
                console.outage = True
                kill(first)
                for page in (public, operator):
                    await until(page, "document.getElementById('notice').textContent.includes('is cut since')")
                with job.process("watch", "--port", str(at["port"]), *token) as second:
                    assert (await addresses(second))["operator"] == at["operator"]
                    for page in (public, operator):
                        await until(page, "document.body.dataset.reconnects === '1'")
                        reconnects += 1
                    # It kept the stream that was looked at, and has everything again.
                    last = list(job.names.values())[-1]
                    await until(public, f"{STEP} === {closed[last]}")
                    await until(public, "document.getElementById('notice').textContent === ''")
    secrets = [at["operator"].partition("#token=")[2], "a secret of the page"]
    assert not [secret for secret in secrets for name in ("watch", "run") if secret in job.log(name)]
    return reconnects


async def _worker_is_killed(job: PageJob, worker: Any, page: Page) -> None:
    """The page stays as it was, and says how old that is."""
    kill(worker)
    before = await page.evaluate(STEP)
    await until(page, "document.getElementById('stream').innerText.includes(' seconds ago')")
    assert f"as of step {before}" in await page.inner_text("#stream")


async def _each_stream(job: PageJob, page: Page, closed: dict[str, int]) -> None:
    """By keys alone: every engine's picture, its numbers against an ordinary consumer, and none of axe's barriers."""
    names, texts = list(job.names.values()), {}
    await page.focus("[role=tab][aria-selected=true]")
    for number, (example, name) in enumerate(job.names.items()):
        if number:
            await page.keyboard.press("ArrowRight")
        await until(page, f"privstream.page.name === '{name}' && {STEP} === {closed[name]}")
        assert await page.evaluate("document.activeElement.id") == f"tab-{name}"
        text = await page.inner_text("#stream")
        steps = await job.steps(name)
        assert f"holds: {steps} of {steps} {VERIFIED}" in text
        assert "The chain of entries holds." in text
        found = await Axe().run(page, options=LEVELS)
        assert found.violations_count == 0, found.generate_report()
        texts[example] = await page.inner_text("#stream")
    assert "Shows" in texts["taxi"]
    assert "largest of" in texts["drives"]
    assert "a line is wider and darker where more trips go" in texts["drives"]
    assert "points in a square" not in texts["drives"], "that is the scale of the density"
    assert "Shares of" in texts["evictions"]
    assert "keys are listed at this step" in texts["arrivals"]
    assert "costs one member whose records are replaced at most epsilon" in texts["zones"], "all of them, not one"
    assert "a bound over all events" in texts["taxi"]
    assert "90 % interval" in await page.evaluate(f"{_label(job.names['departures'])}")
    assert "north" in await page.evaluate(f"{_label(job.names['zones'])}")
    await _slider(page, job.names["taxi"])
    await page.click(f"#tab-{job.names['taxi']}")
    await _shot(page, "page-public.png")
    await page.click("#theme")
    await page.click(f"#tab-{job.names['drives']}")
    await until(page, "document.querySelector('#stream')?.innerText.includes('largest of')")
    found = await Axe().run(page, options=LEVELS)
    assert found.violations_count == 0, found.generate_report()
    await _shot(page, "page-public-dark.png")
    await page.click("#theme")
    await page.click(f"#tab-{names[-1]}")


def _label(name: str) -> str:
    """Of the first chart, as a screen reader has it."""
    return (
        f"async () => {{ document.getElementById('tab-{name}').click();"
        " for (let i = 0; i < 100; i++) {"
        " const label = document.querySelector('#stream .chart')?.getAttribute('aria-label') || '';"
        " if (label.includes('Last:')) return label; await new Promise((done) => setTimeout(done, 100)); } }"
    )


async def _slider(page: Page, name: str) -> None:
    """By keys: the map goes back a step, with other points, and the page says which step it shows."""
    await page.click(f"#tab-{name}")
    await until(page, f"privstream.page.name === '{name}' && {STEP} >= 4")
    newest = await page.evaluate("privstream.page.picture.counted")
    await page.focus("#time")
    await page.keyboard.press("ArrowLeft")
    await page.keyboard.press("ArrowLeft")
    await until(page, f"privstream.page.picture.counted < {newest}")
    step = await page.evaluate("Number(document.getElementById('time').value)")
    assert f"Step {step}, until" in await page.inner_text("output")
    await page.click("text=Change by step")
    await until(page, "document.querySelector('.legend').textContent.includes('fewer than a step before')")
    await page.click("text=Density")
    await page.focus("#time")
    await page.keyboard.press("End")
    await until(page, f"privstream.page.picture.counted === {newest}")


async def _the_operator(job: PageJob, page: Page) -> None:
    """Its address has no token any more; it shows what the public view has not."""
    assert "token" not in page.url
    name = job.names["taxi"]
    await until(page, f"document.getElementById('tab-{name}')")
    await page.click(f"#tab-{name}")
    await until(page, "document.querySelector('#stream').innerText.includes('Error in small areas')")
    await until(page, "document.querySelector('#stream').innerText.includes('OUTSIDE_DOMAIN')")
    found = await Axe().run(page, options=LEVELS)
    assert found.violations_count == 0, found.generate_report()
    await _shot(page, "page-operator.png")
    if not images():  # then the others have no truth, see PageJob
        await page.click(f"#tab-{job.names['drives']}")
        await until(page, "document.querySelector('#stream').innerText.includes('no audit topic is configured')")
        assert "Truth and release" not in await page.inner_text("#stream"), "empty boxes"


async def _views_of_others(browser: Browser, console: Console, job: PageJob, at: dict[str, str]) -> None:
    """On a phone; and somebody who has the operator's address without its token."""
    phone = await opened(browser, console, at["public"], size=PHONE, dark=True)
    for name in job.names.values():
        await phone.click(f"#tab-{name}")
        await until(phone, f"privstream.page.name === '{name}' && {STEP} >= 0")
        assert await phone.evaluate("document.documentElement.scrollWidth") == PHONE["width"], name
    await phone.click(f"#tab-{job.names['departures']}")
    await until(phone, "document.querySelector('#stream .u-wrap')")
    await _shot(phone, "page-phone.png")
    quiet = Console()  # that it is refused is on its console
    stranger = await opened(browser, quiet, at["operator"].partition("#")[0])
    await until(stranger, "!document.getElementById('login').hidden")
    assert await stranger.evaluate("document.activeElement.id") == "token"
    assert "Error" not in await stranger.inner_text("#main")


async def _shot(page: Page, name: str) -> None:
    folder = images()
    if folder is not None:
        await page.evaluate("scrollTo(0, 0)")
        await asyncio.sleep(0.5)
        await page.screenshot(path=folder / name)
        # Few colours are enough, and a quarter of the bytes.
        Image.open(folder / name).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(
            folder / name, optimize=True
        )
