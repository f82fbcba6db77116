"""How figures are printed, chosen once for all that are saved: size, font, size of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

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
    settings = st.session_state.setdefault("export", {})
    key = f"export {setting} {name}"
    chosen = settings.get(setting)
    st.session_state[key] = chosen if chosen in options else options[first]

    def remember() -> None:
        settings[setting] = st.session_state[key]

    return st.segmented_control(
        label, options, key=key, required=True, on_change=remember, help=help, **more
    )


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
    settings, key = st.session_state.setdefault("export", {}), f"export mm {name}"
    st.session_state[key] = settings.get("mm", 136)

    def remember() -> None:
        settings["mm"] = st.session_state[key]

    return float(
        st.number_input(
            "Width in mm", 30, 500, key=key, on_change=remember,
            help="As the journal asks for it, from 30 to 500.",
        )
    )  # fmt: skip
