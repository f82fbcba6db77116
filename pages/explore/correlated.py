"""Importance where features correlate: what permuting one feature alone does not tell."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.report import captions
from pages.parts import choices, frame, naming, stored
from pages.parts.exporting import Panel
from pages.parts.wording import plain

if TYPE_CHECKING:
    import pandas as pd

    from mlem_core.analysis.results import Results
    from mlem_core.analysis.selection import Selection
    from pages.parts.view import View

WAYS = {
    "conditional": (
        "permuted among pairs that agree on all other features",
        "conditional importance (FI)",
    ),
    "left_out": ("left out, and the model fitted without it", "importance when left out (FI)"),
    "group": ("permuted together with others", "importance of the group (FI)"),
}


@stored.kept(32, copied=True, show_spinner="Computing the importances …")
def _importances(job_id: str, selection: Selection, group: tuple[str, ...]) -> pd.DataFrame:
    """model, layer, fold, feature, importance of a group; or `correlated.importances`."""
    from mlem_core.measures.correlated import grouped_importance, importances
    from mlem_core.measures.importance import fitted

    tables, _ = stored.open_analysis(job_id).subset(selection)
    layers = list(selection.layers)
    fits, _ = fitted(tables, selection.estimator)
    if not group:
        return importances(tables, layers, fits, selection.estimator)
    import pandas as pd

    name = " + ".join(group)
    return pd.DataFrame(
        [
            (model, layer, fold, name, value)
            for (model, layer), values in zip(
                layers, grouped_importance(tables, fits.weights, group), strict=True
            )
            for fold, value in enumerate(values)
        ],
        columns=["model", "layer", "fold", "feature", "importance"],
    )


def short_warning(results: Results) -> str:
    """Which features correlate over the pairs, for a caption; empty where none do."""
    said = captions.correlated(results.feature_correlations, naming.now()).removesuffix(".")
    return said and f"{said}, see the other importances below. "


def warning(view: View) -> str:
    """Which of the shown features correlate, in words; empty where none do."""
    from mlem_core.measures import correlated

    tables = view.analysis.tables.of_features(view.features)
    return correlated.warning(correlated.correlated_features(tables), naming.now())


def show(view: View) -> None:
    """The other importances, of the layers that are shown; folded away."""
    frame.folded(
        "Where features correlate: other importances",
        ":material/link:",
        "correlated",
        lambda: _show(view),
    )


def _show(view: View) -> None:
    from mlem_core import figures
    from mlem_core.estimators.registry import estimator_named

    st.caption(plain(warning(view) or "No two of these features correlate by 0.3 or more."))
    if estimator_named(view.selection.estimator).slow:
        st.caption("They are computed with ridge; choose it in the sidebar.")
        return
    way = choices.choose_one(
        "The feature is",
        list(WAYS),
        "way",
        "conditional",
        format_func=lambda one: WAYS[one][0],
        help="Another question than what permuting it alone answers.",
    )
    group: tuple[str, ...] = ()
    if way == "group":
        group = tuple(
            choices.choose_many(
                "Features", view.features, "group", view.features[:2],
                format_func=naming.of_features(view.features),
                help="They are permuted together.",
            )
        )  # fmt: skip
        if not group:
            st.info("Choose at least one feature.", icon=":material/info:")
            return
    table = _importances(
        view.job_id,
        view.selection,
        group,
    )
    if way == "group":
        shown, names = table, list(dict.fromkeys(table["feature"]))
    else:
        shown = table.rename(columns={way: "importance"}).assign(fold=0)
        names = view.all_features
    scores = shown[["model", "layer", "fold"]].drop_duplicates()
    draw = partial(figures.profiles, shown, scores, names, value=WAYS[way][1])
    Panel(
        draw(),
        table,
        f"importance-{way}",
        captions.importance(
            way,
            view.analysis.tables.n_folds,
            captions.computed_on(len(view.analysis.stimuli), held_out=view.held_out),
        ),
        narrow=partial(draw, across=2),
    ).show()
