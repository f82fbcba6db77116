"""The importance profiles of all layers."""

from __future__ import annotations

from pages.explore.profiles import show_profiles
from pages.parts import frame
from pages.parts.opening import show_view


def profiles_body() -> None:
    show_view("profiles", show_profiles)


frame.page(profiles_body)
