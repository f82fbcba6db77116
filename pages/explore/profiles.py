"""Figure 3 of paper 1: the importance of each feature over the layers of each model."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions, lines, tables
from pages.explore import correlated, values
from pages.parts import audited, background, choices, exporting, frame, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain


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
    frame.folded(
        "The same layers by other methods",
        ":material/balance:",
        "baselines",
        lambda: _baseline(view),
    )


BASELINES = {
    "decoding": ("Decoding: can the feature be read out?", "accuracy above chance (Δ)"),
    "random-forest": (
        "Random forest: the features predict the units",
        "permutation importance (PI)",
    ),
    "univariate": ("Univariate: one metric model a unit", "prediction accuracy (held-out ρ)"),
}


def _baseline(view: View) -> None:
    from mlem_core import figures

    name = choices.choose_one(
        "Method",
        list(BASELINES),
        "baseline",
        "decoding",
        format_func=lambda one: BASELINES[one][0],
        help="A method to put beside the metric model, on the same stimuli and folds.",
    )
    task = view.work("baseline", {"name": name, "layers": view.layers})
    made = background.tables(task)
    if made is None:
        background.offer(
            task,
            "Compute it",
            "Computes this method for the layers that are shown, in the background; what is done "
            "is kept.",
        )
        return
    table, features = made["table"], view.features
    value = BASELINES[name][1]
    if name == "univariate":
        features = ["mean over units"]
        means = table.groupby(["model", "layer", "fold"], sort=False)["rho"].mean()
        shown = means.rename("importance").reset_index().assign(feature=features[0])
        scores = shown[["model", "layer", "fold"]]
    else:
        shown = table[table["feature"].isin(features)]
        if name == "decoding":
            shown = shown.assign(importance=shown["accuracy"] - shown["majority"])
        scores = shown.drop_duplicates(["model", "layer", "fold"])
        features = view.all_features
    draw = partial(figures.profiles, shown, scores, features, value=value)
    n = len(view.analysis.stimuli)
    Panel(
        draw(),
        table,
        f"baseline-{name}",
        captions.baseline(
            name,
            captions.computed_on(n, 0, view.analysis.tables.n_folds, view.held_out),
        ),
        narrow=partial(draw, across=2),
    ).show()
    for notice in made["notices"]["notice"]:
        st.caption(plain(notice))
