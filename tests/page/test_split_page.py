"""The parts of a split stream are one tab of the live page, each a button in it."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page

from agents.readers.watch.server import serve
from schemas.config import Config
from schemas.config.load import config_from_mapping
from tests.kafka.support import stream_table
from tests.page.chromium import Console, chromium, executable, opened

TABS = "all => all.map(tab => tab.id)"
PARTS = "all => all.map(part => [part.textContent, part.ariaPressed])"


def config() -> Config:
    event = {"privacy": {"epsilon": 1.0, "unit": "event"}}
    split = {"split": {"field": "borough", "parts": {"m": ["Manhattan"], "rest": ["Bronx"]}}}
    streams = [{**stream_table("taxi"), **event, **split}, {**stream_table("other"), **event}]
    return config_from_mapping(
        {"job": {"name": "j", "data_dir": "unused"}, "kafka": {"bootstrap": "127.0.0.1:1"}, "streams": streams}
    )


@pytest.mark.page
@pytest.mark.seconds(3)
def test_parts_are_together_under_the_name_in_the_configuration() -> None:
    executable()
    console = Console()

    async def parts(page: Page) -> list[list[str]]:
        found: list[list[str]] = await page.eval_on_selector_all("[aria-label=Parts] button", PARTS)
        return found

    async def seen() -> None:
        async with serve(config()) as served, chromium() as browser:
            for address in (served.public, served.operator):
                page = await opened(browser, console, str(address))
                await page.wait_for_selector("[aria-label=Parts] button")
                await page.wait_for_selector("#tab-other")
                assert await page.eval_on_selector_all("[role=tab]", TABS) == ["tab-taxi", "tab-other"]
                assert await parts(page) == [["taxi-m", "true"], ["taxi-rest", "false"]]
                await page.click("text=taxi-rest")
                assert await parts(page) == [["taxi-m", "false"], ["taxi-rest", "true"]]
                assert await page.evaluate("document.activeElement.textContent") == "taxi-rest"
                assert await page.get_attribute("#stream", "aria-labelledby") == "tab-taxi"
                await page.click("#tab-other")
                assert await parts(page) == []

    asyncio.run(seen())
    assert console.errors == []
