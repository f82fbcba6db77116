"""Two analyses beside each other, and what differs between them."""

from __future__ import annotations

from pages.parts import frame


def body() -> None:
    pass


frame.page(body)
