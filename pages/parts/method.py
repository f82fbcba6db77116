"""Parameters of an analysis as they are chosen on a screen, in a form and beside a view.

Beside a view some need other pair tables than the analysis has, which are made once, while one
waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.text import listed
from pages.parts import choices, naming, stored
from pages.parts.choices import plain, progress_text
from pages.parts.view import lacks

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.base.typing import Progress

VALUES = (
    "As same or different, every two values are equally far apart. By value, every two have a "
    "distance of their own: a noun may be nearer to a pronoun than to a verb."
)
NO_VALUES = (
    "No feature here can be coded by value: it needs at least three values, and enough pairs of "
    "stimuli for each two."
)
HOW = (
    "Another answer needs other pair tables, which are made once from the representations in the "
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
    from mlem_core.analysis.spec import AnalysisSpec, parameters

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
    from mlem_core.analysis.run import values_to_resolve

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
    as_run = {"missing": analysis.spec.missing, "values": analysis.tables.resolved}
    return {name: value for name, value in chosen.items() if value != as_run[name]}


def _choose_values(job_id: str, analysis: Analysis) -> tuple[str, ...]:
    names = values_to_tell_apart(job_id)
    told = ", ".join(map(naming.of_features(names), names))
    apart = choices.choose_one(
        "Values",
        ["no", "yes"] if names else ["no"],
        "apart",
        "yes" if analysis.tables.resolved else "no",
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
    from mlem_core.tasks import analyses

    spec, tables = analysis.spec, analysis.tables
    by_value = bool(changes.get("values", tables.resolved))
    other = analyses.coded_id(job_id, changes.get("missing", spec.missing), by_value)
    if other in _made():
        return other
    if by_value or "missing" in changes:
        what_for = (
            f"The {_named(changes)} needs pair tables of its own. Until they are made the figures "
            "below are those of the analysis as it was run. They are made from the representations "
            "of "
        )
        models = [name for name in spec.models if name in analysis.manifest["models"]]
        if lacks(job_id, analysis, models, what_for):
            return None
    bar = st.progress(0.0, text=f"Making the {_named(changes)} …")

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


def _named(changes: dict[str, Any]) -> str:
    parts = ["other treatment of missing values"] if "missing" in changes else []
    return listed([*parts, *(["other coding of values"] if "values" in changes else [])])
