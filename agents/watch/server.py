"""The live page's server: one function for the command line, the demo and whoever embeds it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.config import Config


@dataclass(frozen=True, slots=True)
class LivePage:
    """A page that is served. Addresses hold tokens where one is needed: print them once, and never log them.

    Attributes:
        public: what may be shown to anyone who may see the public topics.
        operator: the operator's view, which is not private; None where it is not served.
    """

    host: str
    port: int
    public: str = field(repr=False)
    operator: str | None = field(repr=False)


@contextlib.asynccontextmanager
async def serve(
    config: Config,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    operator: bool = True,
    public_without_token: bool = False,
    token: bytes | None = None,
    names: Sequence[str] = (),
) -> AsyncIterator[LivePage]:
    """Serve the live page of all streams of a job, in this event loop, until the body is left.

    Args:
        host, port: to listen on; port 0: any free one.
        operator: serve the operator's view, too. It always needs a token.
        public_without_token: off loopback the public view needs a token as well, unless this says otherwise.
        token: secret from which both tokens are made, 16 bytes or more, so that addresses outlive this process; None: a
            new one.
        names: by which the server may be called, beside its addresses and `localhost`.
    Raises: BrokerError if the cluster does not answer; PrivstreamError if the port cannot be had.
    """
    yield LivePage(host, port, "", None)
