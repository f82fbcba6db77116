"""The app for many visitors, each with a secret of its own: what `serve.py` runs with MLEM_SHARED.

The secret is a cookie that no script can read. It is given with the page, and comes back with the
page's connection, where `pages.parts.stored` reads it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from streamlit import config, runtime
from streamlit.starlette import App

from mlem_core.base.room import shared
from mlem_core.storage.store import Store
from mlem_core.tasks.visitors import is_given, new_token
from pages.parts.stored import COOKIE

SAFE = {
    # An address may hold the secret of a link: other sites are not told it.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "content-security-policy": "frame-ancestors 'self'",
}
ROOT = Store().root


class Visitors:
    """Gives each browser that opens a page a secret of its own, if it has none from here."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cookie = HTTPConnection(scope).cookies.get(COOKIE, "")

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
                if headers.get("content-type", "").startswith("text/html"):
                    # Given again with each page: it is kept for so long after the last visit.
                    token = cookie if is_given(cookie, ROOT) else new_token(ROOT)
                    headers.append("set-cookie", _cookie(token, scope))
                    headers["cache-control"] = "no-store"
            await send(message)

        await self._app(scope, receive, answer)


def _cookie(token: str, scope: Any) -> str:
    settings = shared()
    seconds = round((settings.keep_days if settings is not None else 1) * 86400)
    # A cookie over TLS never goes another way.
    secure = "; Secure" if _over_tls(scope) else ""
    path = config.get_option("server.baseUrlPath").strip("/")
    return f"{COOKIE}={token}; Path=/{path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


def _over_tls(scope: Any) -> bool:
    """Whether the browser speaks TLS: with this server, or with a proxy that says so."""
    proxied = Headers(scope=scope).get("x-forwarded-proto", "") == "https"
    return proxied or bool(config.get_option("server.sslCertFile"))


class SameOrigin:
    """Refuses connections and changes that a page of another origin asks for.

    A browser sends the cookie of a host to all its ports, and Streamlit compares names of hosts
    alone: without this a page on another port would be the visitor.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        reads = scope.get("method") in ("GET", "HEAD", "OPTIONS")
        if scope["type"] not in ("http", "websocket") or reads or _same_origin(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            refused = PlainTextResponse("A page of another origin asks for this.", 403)
            await refused(scope, receive, send)


def _same_origin(scope: Any) -> bool:
    """Whether the page that asks was served under the host and port that it asks.

    What no page asks for says no origin; it has no visitor's cookie either.
    """
    headers = Headers(scope=scope)
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if not origins:
        return True
    if len(origins) > 1 or len(hosts) != 1:
        return False
    scheme, _, place = origins[0].lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme)
    if port is None or (scheme == "http" and _over_tls(scope)):
        return False
    return place.removesuffix(port) == hosts[0].lower().removesuffix(port)


class Uploads:
    """Counts what visitors upload, as it comes, and lets go of it when the window is closed.

    Streamlit takes any number of files for any page that is open, and keeps them in memory.
    """

    FILE = re.compile(r"/_stcore/upload_file/([^/]+)/[^/]+")
    FRAME = 65_536  # bytes around a file in a request; and at least so many count for each file

    def __init__(self, app: Any) -> None:
        self._app = app
        self._coming: Counter[str] = Counter()  # bytes on their way, by visitor

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        file = self.FILE.search(scope.get("path", "")) if scope.get("method") == "PUT" else None
        visitor = _visitor_of(file[1]) if file is not None else None
        own = 0

        async def counted() -> Any:
            nonlocal own
            message = await receive()
            n_bytes = len(message.get("body", b""))
            own += n_bytes
            self._coming[str(visitor)] += n_bytes
            self._check(str(visitor), own)
            return message

        try:
            await self._app(scope, receive if visitor is None else counted, send)
        finally:
            if visitor is not None:
                self._coming[visitor] -= own
                self._coming += Counter()  # without those that have nothing on its way
            if visitor is not None or scope["type"] == "websocket":
                _forget_closed()

    def _check(self, visitor: str, n_bytes: int) -> None:
        settings = shared()
        if settings is None:
            return
        if n_bytes > settings.upload_mb * 1e6 + self.FRAME:
            raise HTTPException(
                413, f"This server takes files of up to {settings.upload_mb:,g} MB."
            )
        windows = (one for one in [*_files()] if _visitor_of(one) == visitor)
        files = (len(file.data) for one in windows for file in [*_files()[one].values()])
        held = sum(max(size, self.FRAME) for size in files)
        if held + self._coming[visitor] > settings.uploads_mb * 1e6 + self.FRAME:
            raise HTTPException(
                413,
                f"This server takes {settings.uploads_mb:,g} MB of each visitor at a time: load "
                "the page again.",
            )


def _files() -> dict[str, dict[str, Any]]:
    """What Streamlit holds of uploaded files, by window and by file."""
    uploads: Any = runtime.get_instance().uploaded_file_mgr
    held: dict[str, dict[str, Any]] = uploads.file_storage
    return held


def _visitor_of(window: str) -> str | None:
    """Whose window it is; None of one that is not open."""
    client = runtime.get_instance().get_client(window)
    return None if client is None else str(client.client_context.cookies.get(COOKIE, ""))


def _forget_closed() -> None:
    """Let go of the files of windows that are closed: they would stay for as long as the server."""
    if runtime.exists():
        server = runtime.get_instance()
        for window in [one for one in [*_files()] if not server.is_active_session(one)]:
            server.uploaded_file_mgr.remove_session_files(window)


app = App(
    Path(__file__).resolve().parent.parent / "app.py",
    middleware=[Middleware(SameOrigin), Middleware(Visitors), Middleware(Uploads)],
)
