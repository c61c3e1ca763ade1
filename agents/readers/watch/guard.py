"""Who may see which view, and what a browser may do with a page of it.

Two tokens, made from one secret: whoever is given the public one cannot see the operator's view. A browser takes its
token from the address behind `#`, which it never sends, trades it for a cookie at `/login`, and forgets it; other
clients send `Authorization: Bearer TOKEN`. Tokens are compared in constant time and are in no log.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from agents.kafka.lifecycle.connections import REQUEST_S, host_of, is_address
from agents.readers.watch.routes import NO_STORE

log = logging.getLogger(__name__)

View = Literal["public", "operator"]
VIEWS: tuple[View, ...] = ("public", "operator")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OPEN = ("/", "/public", "/operator", "/login")
"""Pages without data: they ask for the token. Assets, which are in every wheel, are open as well."""


def token_of(secret: bytes, view: View) -> str:
    """Return the token of a view: 43 letters, digits, - and _."""
    return _text(hmac.digest(secret, b"privstream/watch/" + view.encode(), hashlib.sha256))


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides over each request.

    Attributes:
        secret: both tokens are made from it. locked: views that need theirs.
        names: hosts by which the server may be called, lower case; with `addresses` also by any IP address.
    """

    secret: bytes = field(repr=False)
    locked: frozenset[View]
    names: frozenset[str]
    addresses: bool

    @staticmethod
    def of(secret: bytes, *, host: str, locked: frozenset[View], names: Sequence[str]) -> Guard:
        loopback = is_loopback(host)
        known = {"localhost", "127.0.0.1", "::1", host, *names}
        if not loopback:
            known |= {socket.gethostname(), socket.getfqdn()}
        return Guard(secret, locked, frozenset(name.lower() for name in known), not loopback)

    def known_host(self, host: str) -> bool:
        """Return whether a request is meant for this server.

        Another name that was pointed at its address is refused, so that no page of a stranger reads this one through
        the visitor's browser (DNS rebinding).
        """
        name = host_of(host)
        return name in self.names or (self.addresses and is_address(name))

    def cookie(self, request: web.Request, view: View) -> str:
        """Return its name, with the port: browsers send cookies to all ports of a host."""
        return f"privstream-{view}-{request.get_extra_info('sockname', ('', 0))[1]}"

    def session(self, view: View) -> str:
        """Return what the cookie holds instead of the token."""
        return _text(hmac.digest(token_of(self.secret, view).encode(), b"cookie", hashlib.sha256))

    def allows(self, request: web.Request, view: View) -> bool:
        """Return whether a request may see a view."""
        if view not in self.locked:
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return _same(given.strip(), token_of(self.secret, view))
        return _same(request.cookies.get(self.cookie(request, view), ""), self.session(view))

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse or answer."""
        try:
            self._check(request)
            return await handler(request)
        except web.HTTPException as error:
            error.headers.update(NO_STORE)
            raise
        except Exception as error:
            if not isinstance(error, ConnectionError):  # whoever asked has gone
                log.error("a page could not be answered: %s", type(error).__name__)
            raise

    def _check(self, request: web.Request) -> None:
        """Raise HTTPException if a request is refused."""
        if not self.known_host(request.host):
            raise web.HTTPMisdirectedRequest(text="this server is not called that; see privstream watch --name\n")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and request.path not in OPEN:
            raise web.HTTPForbidden(text="asked for by a page of another site\n")
        view: View = "operator" if request.path.startswith("/operator/") else "public"
        opened = request.path in OPEN or request.path.startswith("/assets/")
        if not opened and not self.allows(request, view):
            raise web.HTTPUnauthorized(text="the token is missing or is not that of this server\n")

    async def login(self, request: web.Request) -> web.Response:
        """Trade a token for a cookie. The body is JSON: it cannot come from a form of another site.

        A proxy that ends TLS asks by http for a page that the browser knows by https: the name decides, not the scheme.
        """
        origin, host = request.headers.get("Origin", "").lower(), request.host.lower()
        if "Origin" in request.headers and origin not in (f"http://{host}", f"https://{host}"):
            raise web.HTTPForbidden(text="asked for by a page of another site\n")
        try:
            async with asyncio.timeout(REQUEST_S):
                asked = await request.json()
            view, token = asked["view"], str(asked["token"])
        except (ValueError, LookupError, TypeError, RecursionError, TimeoutError):
            raise web.HTTPBadRequest(text="a JSON object with view and token\n") from None
        if view not in VIEWS:
            raise web.HTTPBadRequest(text="view is public or operator\n")
        if not _same(token, token_of(self.secret, view)):
            raise web.HTTPUnauthorized(text="this is not the token of this server\n")
        answer = web.Response(status=204)
        answer.set_cookie(
            self.cookie(request, view), self.session(view), httponly=True, samesite="Strict", path="/",
            secure=request.scheme == "https" or origin.startswith("https:"),
        )  # fmt: skip
        return answer


def _same(given: str, right: str) -> bool:
    """Compare in constant time, also text that is no Unicode."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), right.encode())


async def secure_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Set `HEADERS` where a response is prepared, so that event streams and files have them, too."""
    response.headers.update({name: value for name, value in HEADERS.items() if name not in response.headers})
    response.headers.setdefault("Cache-Control", "no-cache")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    return host.lower() == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
