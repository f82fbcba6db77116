"""The app for many visitors, each with a secret of its own: what `serve.py` runs with MLEM_SHARED.

The secret is a cookie that no script can read. It is given with the page, and comes back with the
page's connection, where `pages.parts.visitor` reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from streamlit import config
from streamlit.starlette import App

from mlem_core.base.shared import shared
from mlem_core.tasks.visitors import TOKEN, new_token
from pages.parts.visitor import COOKIE

SAFE = {
    # An address may hold the secret of a link: other sites are not told it.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "content-security-policy": "frame-ancestors 'self'",
}


class Visitors:
    """Gives each browser that opens a page a secret of its own, if it has none."""

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
                    token = cookie if TOKEN.fullmatch(cookie) else new_token()
                    headers.append("set-cookie", _cookie(token, scope))
                    headers["cache-control"] = "no-store"
            await send(message)

        await self._app(scope, receive, answer)


def _cookie(token: str, scope: Any) -> str:
    settings = shared()
    seconds = round((settings.keep_days if settings is not None else 1) * 86400)
    # A proxy that ends TLS says so; a cookie over TLS never goes another way.
    proxied = HTTPConnection(scope).headers.get("x-forwarded-proto", "") == "https"
    secure = "; Secure" if proxied or config.get_option("server.sslCertFile") else ""
    path = config.get_option("server.baseUrlPath").strip("/")
    return f"{COOKIE}={token}; Path=/{path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


app = App(Path(__file__).resolve().parent.parent / "app.py", middleware=[Middleware(Visitors)])
