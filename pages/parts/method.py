"""Parameters of an analysis as they are chosen on a screen, in a form and beside a view.

Beside a view some need other statistics of the pairs than the analysis has, which are made once,
while one waits.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.run import values_to_resolve
from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.errors import InputError
from mlem_core.base.text import listed
from mlem_core.base.typing import Progress
from mlem_core.figures.value_distances import table_caption
from mlem_core.tasks import analyses
from pages.parts import choices, exporting, stored
from pages.parts.choices import plain, progress_text
from pages.parts.view import View, lacks

VALUES = (
    "As same or different, every two values are equally far apart. By value, every two have a "
    "distance of their own: a noun may be nearer to a pronoun than to a verb."
)
NO_VALUES = (
    "No feature here can be coded by value: it needs at least three values, and few enough of them."
)
HOW = (
    "Another answer needs another pass over the pairs, once, with the representations in the "
    "store; that takes some seconds."
)


def choose(parameter: str, name: str = "", **more: Any) -> str:
    """Chosen value of a field of `AnalysisSpec`, with its label; of one that is so or not,
    "yes" or "no".

    Parameters
    ----------
    name : in the URL, where that is not the field's
    more : `default`, `help` and `labels`, where they are not the field's; the rest goes to the
        widget
    """
    described = parameters()[parameter]
    default = more.pop("default", getattr(AnalysisSpec, parameter))
    labels = more.pop("labels", described.labels)
    if name:
        # Beside a view it has been settled.
        labels = {value: label for value, label in labels.items() if value != "auto"}
    if isinstance(default, bool):
        default, labels = "yes" if default else "no", {"no": "no", "yes": "yes"}
    more = {"help": described.text, **more}
    return choices.choose_one(described.label, labels, name or parameter, default, **more)


@stored.kept(64, copied=True)
def values_to_tell_apart(job_id: str) -> tuple[str, ...]:
    """Features that an analysis codes by value, or else had better; there may be none."""
    return values_to_resolve(stored.open_analysis(job_id))


def choose_tables(job_id: str, analysis: Analysis) -> dict[str, Any]:
    """Choices other than those of the analysis: entries of its `AnalysisSpec`."""
    none = not analysis.stimuli.has_missing
    cells = choose(
        "missing",
        "cells",
        default=analysis.spec.missing,
        help="No value is missing here." if none else f"What an empty cell means. {HOW}",
        disabled=none,
    )
    chosen = {"missing": cells, "values": _choose_values(job_id, analysis)}
    as_run = {"missing": analysis.spec.missing, "values": analysis.pairs.resolved}
    return {name: value for name, value in chosen.items() if value != as_run[name]}


def _choose_values(job_id: str, analysis: Analysis) -> tuple[str, ...]:
    names = values_to_tell_apart(job_id)
    told = ", ".join(stored.feature_titles(names).values())
    apart = choices.choose_one(
        "Values",
        ["no", "yes"] if names else ["no"],
        "apart",
        "yes" if analysis.pairs.resolved else "no",
        format_func=lambda one: (
            f"coded by value: {told}" if one == "yes" else "coded as same or different"
        ),
        help=f"{VALUES} {HOW}" if names else NO_VALUES,
        disabled=not names,
    )
    return names if apart == "yes" else ()


def other_tables(job_id: str, analysis: Analysis, changes: dict[str, Any]) -> str | None:
    """The id of the same analysis with other tables, which are made here where there are none yet.

    None where that takes representations that are not on this machine, which is then said.

    Parameters
    ----------
    changes : entries of its `AnalysisSpec`, see `choose_tables`
    """
    spec = analysis.spec
    by_value = bool(changes.get("values", analysis.pairs.resolved))
    other = analyses.coded_id(job_id, changes.get("missing", spec.missing), by_value)
    if other in _made():
        return other
    parts = {"missing": "other treatment of missing values", "values": "other coding of values"}
    named = listed([part for name, part in parts.items() if name in changes])
    what_for = (
        f"The {named} needs another pass over the pairs. Until it is made the figures below are "
        "those of the analysis as it was run. It takes the representations of "
    )
    models = [name for name in spec.models if name in analysis.manifest["models"]]
    if lacks(job_id, analysis, models, what_for):
        return None
    bar = st.progress(0.0, text=f"Making the {named} …")

    def report(progress: Progress) -> None:
        share = min(1.0, progress.done / max(progress.total, 1))
        bar.progress(share, progress_text(progress, None))

    try:
        stored.find_job(other).analysis(report)
    except InputError as error:
        st.error(plain(error), icon=":material/error:")
        return None
    finally:
        bar.empty()
    _made().add(other)
    return other


@stored.kept(1)
def _made() -> set[str]:
    """The analyses with other tables whose tables are in the store."""
    return set()


VALUED = "Features coded by value"
NO_INTERACTIONS = "Products of two features are columns of their own: run the analysis with them."


def values_in_layers(view: View) -> None:
    """The distances of the values of a feature, a matrix a layer."""
    results = view.results
    if not results.resolved:
        _offer_by_value(view)
        return
    feature = _feature(results)
    exporting.show_figure(view, "values_matrices", feature=feature)
    table = results.value_distances
    own = table[table["feature"] == feature]
    called = stored.names().feature(feature)
    exporting.draw_table(own, "value-distances", table_caption(called))


def _feature(results: Results) -> str:
    """The feature that is looked at; at first the one that matters most."""
    return choices.choose_one(
        "Feature",
        stored.feature_titles(results.resolved),
        "valued",
        results.most_important(results.resolved),
        help="Of the features that are coded by value.",
    )


def _offer_by_value(view: View) -> None:
    """Button that codes features by value, and what it would show."""
    names = [name for name in values_to_tell_apart(view.job_id) if name in view.features]
    if not names:
        st.caption(
            "No feature of this analysis can be coded by value. A feature needs at least three "
            "values, and enough pairs of stimuli for each two."
        )
        return
    named = ", ".join(stored.feature_titles(names).values())
    st.caption(
        f"Features are coded as same or different here. Coded by value, {plain(named)} also shows "
        "which values a layer holds together, and how far apart it puts others."
    )
    if st.button(
        f"Code {plain(named)} by value",
        icon=":material/call_split:",
        on_click=lambda: choices.put("apart", ["yes"]),
        help="Passes over the pairs once more, with the stored representations.",
    ):
        st.rerun()
