"""What stands before every page: this machine's name, the session's token, no other page, and what a page may load."""

from __future__ import annotations

import secrets

from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ["127.0.0.1", "localhost"]
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """A token of 256 random bits, for one session of the server."""
    return secrets.token_urlsafe(32)


def fenced(app: Starlette, token: str) -> ASGIApp:
    """The app below `/<token>/`, for requests to this machine that no other page makes.

    The token is a part of each address and no cookie: cookies of one port go to all ports of a machine, and a browser
    sends them along with what other pages ask for. Answers carry `HEADERS`.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            return

        async def send_fenced(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        refusal = _refusal(Request(scope), token)
        if refusal is not None:
            await PlainTextResponse(refusal, status_code=403)(scope, receive, send_fenced)
        else:
            await app({**scope, "root_path": f"/{token}"}, receive, send_fenced)

    return TrustedHostMiddleware(answer, allowed_hosts=HOSTS, www_redirect=False)


def _refusal(request: Request, token: str) -> str | None:
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}":
        return "this page takes no requests of other pages"
    given = request.scope["path"].removeprefix("/").partition("/")[0]
    if not secrets.compare_digest(given.encode(), token.encode()):
        return "open the address that the command has printed: it holds this session's token"
    return None
