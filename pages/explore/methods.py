"""The same layers by other methods: how well each predicts, and what it says of the features."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import layer_name
from mlem_core.report import captions, captions_of_methods
from pages.explore.terms import computed_on
from pages.parts import background, choices, exporting, frame, naming, stored
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain

if TYPE_CHECKING:
    import pandas as pd

    from mlem_core.analysis.results import Results


def show(view: View, results: Results) -> None:
    """What other methods make of the layers that are shown; folded away."""
    frame.folded(
        "How well each method predicts, and MLEM against FR-RSA",
        ":material/leaderboard:",
        "methods",
        partial(_scores, view, results),
    )
    frame.folded(
        "The same layers by other methods",
        ":material/balance:",
        "baselines",
        partial(_baseline, view, results),
    )


def _scores(view: View, results: Results) -> None:
    from mlem_core import figures
    from mlem_core.analysis import baselines, methods

    of = view.analysis, stored.store(), view.selection
    found = methods.results_by_method(*of)
    table = methods.scores(found, baselines.with_rho(*of))
    draw = partial(figures.method_scores, table, results.scores, methods.NAMES)
    Panel(
        draw(),
        table,
        "methods",
        captions_of_methods.method_scores(computed_on(view)),
        narrow=partial(draw, across=2),
    ).show()
    missing = [name for name in methods.slow(view.analysis, view.selection) if name not in found]
    if missing:
        background.offer(
            view.work("methods", view.selection.to_dict()),
            "Fit " + " and ".join(methods.NAMES.get(name, name) for name in missing),
            "Fits every layer that is shown, in the background: about a second a layer and method. "
            "It is computed once.",
        )
    if set(methods.COMPARED) <= set(found):
        _agreement(view, methods.agreement(*(found[name] for name in methods.COMPARED)))
        _noise(view)
    st.caption(
        "A random forest and the mean over single units join these lines once they have been "
        "computed below, with all features."
    )


def _agreement(view: View, table: pd.DataFrame) -> None:
    from mlem_core import figures

    st.markdown("**MLEM against FR-RSA**")
    draw = partial(figures.method_agreement, table)
    Panel(
        draw(),
        table,
        "method-agreement",
        captions_of_methods.method_agreement(computed_on(view)),
        narrow=partial(draw, across=1),
    ).show()


def _noise(view: View) -> None:
    """Whether both methods still agree when a layer is noisy."""
    from mlem_core import figures
    from mlem_core.robustness import noise

    layers = [one for one in view.layers if noise.can_be_made(view.analysis, view.selection, one)]
    if not layers:
        return
    names = {layer_name(one): one for one in layers}
    name = choices.choose_one(
        "Layer with noise",
        list(names),
        "noisy",
        list(names)[len(names) // 2],
        format_func=naming.layer,
        help="A layer to whose units noise is added, of 0 to 3 standard deviations of each.",
    )
    found = noise.find(view.analysis, stored.store(), view.selection, names[name])
    if found is None:
        background.offer(
            view.work("noise", {"selection": view.selection.to_dict(), "layer": list(names[name])}),
            "Add noise to this layer",
            "Fits the layer at seven levels of noise by both methods, in the background: about a "
            "second each. It is computed once.",
        )
        return
    draw = partial(figures.noise_agreement, found)
    Panel(
        draw(),
        found,
        "noise-agreement",
        captions_of_methods.noise_agreement(naming.layer(name), computed_on(view)),
        narrow=partial(draw, across=1),
        options={"noisy": name},
    ).show()


def _units(view: View, results: Results, table: pd.DataFrame) -> None:
    from mlem_core import figures
    from mlem_core.analysis import methods

    draw = partial(figures.unit_scores, table, results.scores)
    Panel(
        draw(),
        table,
        "unit-scores",
        captions_of_methods.unit_scores(computed_on(view)),
        narrow=partial(draw, across=2),
        table=partial(methods.units, table, results),
    ).show()
    exporting.show_table(
        methods.units(table, results),
        "units",
        "Single units in numbers",
        "median, best: of the held-out ρ of the units of a layer; whole: of the metric model of "
        "all of them together; above_whole: the share of units above it.",
    )


BASELINES = {
    "decoding": ("Decoding: can the feature be read out?", "accuracy above chance (Δ)"),
    "random-forest": (
        "Random forest: the features predict the units",
        "permutation importance (PI)",
    ),
    "univariate": ("Univariate: one metric model a unit", "prediction accuracy (held-out ρ)"),
}


def _baseline(view: View, results: Results) -> None:
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
    table, value = made["table"], BASELINES[name][1]
    if name == "univariate":
        _units(view, results, table)
        return
    shown = table[table["feature"].isin(view.features)]
    if name == "decoding":
        shown = shown.assign(importance=shown["accuracy"] - shown["majority"])
    scores = shown.drop_duplicates(["model", "layer", "fold"])
    draw = partial(figures.profiles, shown, scores, view.all_features, value=value)
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
