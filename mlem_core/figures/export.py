"""A figure as a file."""

from __future__ import annotations

import os
import shutil

import plotly.graph_objects as go

from mlem_core.errors import InputError, unknown


def can_write_images() -> bool:
    """Whether there is a Chrome or Chromium for `image`; only looks, starts nothing."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return shutil.which(named) is not None
    from choreographer.browsers.chromium import Chromium

    return Chromium.find_browser(skip_local=False) is not None


def image(
    figure: go.Figure, format: str, *, width: int = 900, height: int = 600, scale: float = 2
) -> bytes:
    """A figure as a file's content, on white.

    Parameters
    ----------
    format : "svg", "png" or "pdf"
    width, height : in CSS pixels (96 an inch)
    scale : pixels of a PNG for each of them

    Raises
    ------
    InputError
        An unknown format; no Chrome or Chromium, or it could not draw.
    """
    if format not in ("svg", "png", "pdf"):
        raise unknown("image format", format, ("svg", "png", "pdf"))
    if not can_write_images():
        raise InputError(
            f"no Chrome or Chromium was found to write the {format.upper()}: install one, or name "
            "its path in BROWSER_PATH."
        )
    on_white = go.Figure(figure)
    on_white.update_layout(paper_bgcolor="white", plot_bgcolor="white")
    try:
        written: bytes = on_white.to_image(format=format, width=width, height=height, scale=scale)
    except (RuntimeError, OSError, TimeoutError) as error:
        raise InputError(
            f"the browser could not write the {format.upper()}: {' '.join(str(error).split())}"
        ) from error
    return written
