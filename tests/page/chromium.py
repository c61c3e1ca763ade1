"""The installed Chromium, driven by Playwright: what is on the console is kept, since an error there is a defect."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from tests.missing import missing

NAMES = ("chromium", "chromium-browser", "google-chrome")
GONE = (
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_CONNECTION_RESET",
    "ERR_EMPTY_RESPONSE",
    "ERR_SOCKET_NOT_CONNECTED",
)
"""What Chromium says of a server that was killed. It says it whatever the page does."""
LEVELS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
"""Rules of axe-core."""
WIDE, PHONE = {"width": 1180, "height": 1060}, {"width": 390, "height": 800}


def executable() -> str:
    """Its path. Skips where there is none; fails there in CI: what must be tried is not left out."""
    found = os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:  # Playwright's own, where somebody has let it download one
        folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
        found = next(map(str, sorted(folder.glob("chromium-*/chrome-linux*/chrome"), reverse=True)), None)
    return found or missing("no Chromium on PATH. On Debian or Ubuntu: apt install chromium; or set CHROMIUM to one")


class Console:
    """Errors of all pages that are watched.

    Attributes:
        pages: how many. errors: what each said, but for servers that were killed on purpose.
    """

    def __init__(self) -> None:
        self.pages = 0
        self.errors: list[str] = []
        self.outage = False

    def watch(self, page: Page) -> None:
        self.pages += 1
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))

    def _said(self, message: Any) -> None:
        if message.type not in ("error", "warning"):
            return
        if self.outage and any(word in message.text for word in GONE):
            return
        self.errors.append(f"{message.type}: {message.text} {message.location}")


async def until(page: Page, expression: str, *, seconds: float = 90.0) -> None:
    """Wait until an expression is true in the page. Playwright's own waiting evaluates texts there, which the page's
    Content-Security-Policy rightly refuses.
    """
    async with asyncio.timeout(seconds):
        while not await page.evaluate(f"() => Boolean({expression})"):  # noqa: ASYNC110  it is the browser that is asked
            await asyncio.sleep(0.1)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser of its own, without a window."""
    path = executable()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def opened(
    browser: Browser, console: Console, address: str, *, size: dict[str, int] = WIDE, dark: bool = False
) -> Page:
    """A page at an address, in a session of its own."""
    context = await browser.new_context(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    page.set_default_timeout(60_000)
    console.watch(page)
    await page.goto(address)
    return page
