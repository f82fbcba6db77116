"""Figure 3 of paper 1: the importance of each feature over the layers of each model."""

from __future__ import annotations

from mlem_core.report import captions
from pages.explore import correlated, methods, values
from pages.parts import exporting, frame, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View


def show(view: View) -> None:
    results = view.results()
    panel = Panel.of(view, "profiles")
    if results is None or panel is None:
        return
    panel.show()
    uncertainty.offer(view)
    exporting.show_table(
        results.scores,
        "scores",
        "Held-out scores of each layer and fold",
        captions.scores(view.coding),
    )
    frame.folded(
        values.TITLE,
        ":material/call_split:",
        "values",
        lambda: values.in_layers(view, results),
    )
    correlated.show(view)
    methods.show(view)
