"""Settings of figures in print, chosen once for all that are saved: size, font, text size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.parts import choices

if TYPE_CHECKING:
    from mlem_core.figures import Paper

OTHER = "other"


def pick(
    label: str, options: list[Any], name: str, setting: str, help: str, first: int = 0, **more: Any
) -> Any:
    """A choice that is the same wherever figures are saved; `first` is taken until it is made.

    Parameters
    ----------
    name : of the figure beside which the choice stands
    setting : what is chosen
    """
    chosen = _settings().get(setting)
    more |= _bound(setting, name, chosen if chosen in options else options[first])
    return st.segmented_control(label, options, required=True, help=help, **more)


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = st.session_state.setdefault("export", {})
    return settings


def _bound(setting: str, name: str, value: object) -> dict[str, Any]:
    """Key and callback of a choice that stands beside each figure."""
    change = partial(_settings().__setitem__, setting)
    return choices.bound(f"export {setting} {name}", value, change)


def paper(name: str, *, resolution: bool = False) -> Paper:
    """The size and font that are chosen beside a figure, and the resolution of pixels."""
    from mlem_core.figures import DPI, FONTS, WIDTHS_MM, Paper

    width = pick(
        "Width",
        [*WIDTHS_MM, OTHER],
        name,
        "width",
        "The width of the printed figure; text keeps its size.",
        first=list(WIDTHS_MM).index("two columns"),
        format_func=lambda one: f"{one}, {WIDTHS_MM[one]:.0f} mm" if one in WIDTHS_MM else one,
    )
    wide = WIDTHS_MM[width] if width in WIDTHS_MM else _millimetres(name)
    font = pick(
        "Font",
        list(FONTS),
        name,
        "font",
        "The font of all text; a server without it takes one of the same widths.",
    )
    points = pick(
        "Text size", [6, 7, 8, 9, 10], name, "points", "In points, as in a journal's guidelines.",
        first=1, format_func=lambda one: f"{one} pt",
    )  # fmt: skip
    dpi = DPI[0]
    if resolution:
        dpi = pick("Resolution", list(DPI), name, "dpi", "Pixels an inch.",
                   format_func=lambda one: f"{one} dpi")  # fmt: skip
    return Paper(width_mm=wide, font=font, points=float(points), dpi=int(dpi))


def _millimetres(name: str) -> float:
    about = "As the journal asks for it, from 30 to 500."
    chosen = _bound("mm", name, _settings().get("mm", 136))
    return float(st.number_input("Width in mm", 30, 500, help=about, **chosen))
