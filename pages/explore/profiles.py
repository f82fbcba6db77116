"""Figure 3 of paper 1: the importance of each feature over the layers of each model."""

from __future__ import annotations

from functools import partial

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions, lines, tables
from pages.explore import correlated, methods, values
from pages.parts import audited, exporting, frame, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View


def show(view: View) -> None:
    from mlem_core import figures
    from mlem_core.inference.tables import score_table
    from mlem_core.robustness.flags import of_layers

    results = view.results()
    if results is None:
        return
    drawn = figures.with_interactions(results.importance, view.all_features)
    flags = of_layers(audited.marks(view), view.layers)
    intervals = uncertainty.of(view)
    correction = uncertainty.chosen_correction()
    tested = None if intervals is None else score_table(intervals, view.layers, correction)
    draw = partial(
        figures.profiles,
        results.importance,
        results.scores,
        drawn,
        annotations=figures.Annotations(
            None if tested is None else tested.table,
            flags,
            marked=[parse_layer(name) for name in dict.fromkeys(view.pair)],
        ),
    )
    Panel(
        draw(),
        results.importance if tested is None else tested.table,
        "profiles",
        captions.profiles(
            view.caption(results),
            view.coding,
            "" if tested is None else tested.family,
            "" if intervals is None else intervals.units.over,
            flagged=bool(flags),
            warning=correlated.short_warning(results),
        ),
        narrow=partial(draw, across=2),
        table=partial(tables.profile_table, results)
        if intervals is None
        else partial(tables.profile_intervals, intervals, results),
        line=lines.profiles(view.held_out),
    ).show()
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
    methods.show(view, results)
