"""The live page of a run on this machine, where this installation has one."""

from __future__ import annotations

import contextlib
import importlib.util
import pkgutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.config import Config

PAGE = "agents.watch"
SERVE = f"{PAGE}:serve"
"""Called with the configuration, in this event loop; what it gives has the addresses `public` and `operator`."""


@dataclass(frozen=True, slots=True)
class PageAddresses:
    """Addresses may hold tokens: print them once, and never log them."""

    public: str
    operator: str | None


@contextlib.asynccontextmanager
async def live_page(config: Config) -> AsyncIterator[PageAddresses | None]:
    """Served until the body is left; None where there is none. Raises: what serving it raises."""
    if importlib.util.find_spec(PAGE) is None:
        yield None
        return
    async with pkgutil.resolve_name(SERVE)(config) as page:
        yield PageAddresses(page.public, page.operator)
