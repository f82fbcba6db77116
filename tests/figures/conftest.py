"""What holds of every figure that a test of this folder draws."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

from mlem_core import figures

# On paper a figure is white, and its text black.
OF_FILES = ("on_paper", "in_narrow_window")


def checked(draw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(draw)
    def drawn(*given: Any, **more: Any) -> Any:
        figure = draw(*given, **more)
        if isinstance(figure, go.Figure):
            json.loads(go.Figure(figure.to_dict()).to_json())
            assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
            assert figure.layout.font.color in (None, "#444")
        return figure

    return drawn


@pytest.fixture(autouse=True)
def every_figure_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plotly, which checks each property, takes it; ground and text are left to the page."""
    for name in figures.__all__:
        draw = getattr(figures, name)
        if inspect.isfunction(draw) and name not in OF_FILES:
            monkeypatch.setattr(figures, name, checked(draw))
