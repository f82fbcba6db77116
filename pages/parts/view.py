"""View of an analysis: what the user keeps of it, and its results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from mlem_core.base.typing import layer_name, parse_layer
from pages.parts import background, choices, naming, stored
from pages.parts.choices import plain

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.analysis.results import Results
    from mlem_core.analysis.selection import Selection
    from mlem_core.base.typing import Layer
    from mlem_core.figures.context import FigureContext
    from mlem_core.tasks.followups import Followup

T = TypeVar("T")

# The choice that draws no marks of the audit.
HIDDEN = "hidden"


@stored.kept(256)
def _results(job_id: str, selection: Selection, _analysis: Analysis) -> Results:
    from mlem_core.analysis import methods

    kept = methods.kept_results(_analysis, stored.store(), selection)
    return _analysis.results_of(selection) if kept is None else kept


@stored.kept(32)
def _memory(job_id: str, selection: Selection) -> dict[Hashable, Any]:
    """Memory of what was computed for a selection of an analysis, beside its tables."""
    return {}


# What is chosen beside figures, by the name of the option that it is of a figure.
OPTIONS = {
    "color": "colour",
    "within": "within",
    "feature": "valued",
    "layer": "at",
    "depth": "depth",
    "correction": "correction",
    "order": "order",
    **{name: name for name in ("measure", "system_a", "system_b")},
}


@dataclass(frozen=True)
class View:
    """The analysis that a view shows, and what the user keeps of it.

    Attributes
    ----------
    job_id : of the analysis, see `mlem_core.tasks.analyses.find`
    analysis : as loaded
    selection : what the user keeps of it
    """

    job_id: str
    analysis: Analysis
    selection: Selection

    @property
    def analysis_id(self) -> str:
        """Identifier of the analysis as it was run, whose pairs may be coded otherwise here."""
        return self.job_id.partition("-")[0]

    @property
    def features(self) -> list[str]:
        """Kept by the user, in the order of the analysis."""
        return list(self.selection.features)

    @property
    def coding(self) -> str:
        """Coding of the features, see `mlem_core.pairs.columns.coding`."""
        return self.analysis.tables.coding_of(self.features, naming.now())

    @property
    def layers(self) -> list[Layer]:
        """(model, layer) kept by the user."""
        return list(self.selection.layers)

    @property
    def all_features(self) -> list[str]:
        """Features of the analysis, in its order; their place decides the colours."""
        return [feature.name for feature in self.analysis.stimuli.features]

    @property
    def layer_names(self) -> list[str]:
        """ "model:layer" of each kept layer."""
        return [layer_name(layer) for layer in self.layers]

    def once(self, key: Hashable, make: Callable[[], T | None]) -> T | None:
        """Value of `make()`, kept in memory unless it is None: what is not there yet may come.

        The figures keep theirs in the same place, see `mlem_core.figures.context.Selected.once`:
        what both need has the same key.

        Parameters
        ----------
        key : with all that it depends on but the analysis and what is kept of it
        """
        memory = _memory(self.job_id, self.selection)
        found: T | None = memory.get(key)
        if found is None and (found := make()) is not None:
            memory[key] = found
        return found

    @property
    def _is_slow(self) -> bool:
        """Whether its tables take long and are kept in the store."""
        from mlem_core.estimators.registry import estimator_named

        return estimator_named(self.selection.estimator).slow

    def _tables(self) -> Results | None:
        """The tables for what is kept; None where they take long and are not in the store yet."""
        if not self._is_slow:
            return _results(self.job_id, self.selection, self.analysis)
        from mlem_core.analysis import methods

        of = self.analysis, stored.store(), self.selection
        return self.once("fits", lambda: methods.kept_results(*of))

    def results(self) -> Results | None:
        """The tables for what is kept; None while they are computed (which is shown)."""
        results = self._tables()
        if results is None:
            _compute(self)
        return results

    def shown(self, *, marked: tuple[int, ...] = (), **options: str) -> FigureContext | None:
        """Context of the view's figures; None as `results`.

        Parameters
        ----------
        marked : rows of the stimuli that are marked in their maps
        options : of figures, beside what is chosen
        """
        from mlem_core.figures.context import Drawing, FigureContext

        results = self._tables() or self.results()
        if results is None:
            return None
        a, b = map(parse_layer, self.pair)
        drawing = Drawing(
            None if a == b else (a, b),
            stored.store(),
            flags=choices.get_one("marks") != HIDDEN,
            names=naming.now(),
            options=self.options(**options),
            screen=True,
            marked=marked,
        )
        memory = _memory(self.job_id, self.selection)
        return FigureContext(self.analysis, self.selection, results, drawing, memory)

    def options(self, **more: str) -> dict[str, str]:
        """Chosen options of figures, without empty ones."""
        said = {name: choices.get_one(choice) for name, choice in OPTIONS.items()} | more
        return {name: value for name, value in said.items() if value}

    def work(self, kind: str, options: Mapping[str, Any]) -> Followup:
        """Work on the analysis that goes on in the background, whether it was started or not."""
        from mlem_core.tasks import followups

        return followups.followup_of(kind, self.job_id, options, stored.store())

    @property
    def pair(self) -> tuple[str, str]:
        """The two different layers "model:layer" that all pages look at."""
        defaults = _first_look(self)
        a, b = (choices.get_one(name, one) for name, one in zip("ab", defaults, strict=True))
        there = self.layer_names
        return (a, b) if a != b and {a, b} <= {*there} else defaults


def _compute(view: View) -> None:
    st.info(
        f"The estimator {view.selection.estimator} takes about a second a layer. It is "
        "computed once; after that every look is quick.",
        icon=":material/hourglass:",
    )
    task = view.work("fits", view.selection.to_dict())
    if not task.folder.exists():
        task.begin()
    background.offer(
        task, "Fit the metric models", "Fits every layer that is shown, in the background."
    )


def lacks(view: View, models: Sequence[str], what_for: str) -> bool:
    """Whether representations of some models of a view are not here; if so, it offers to make them.

    Parameters
    ----------
    what_for : begins the sentence that then names the models
    """
    from mlem_core.analysis.maps import without_representations

    lacking = without_representations(view.analysis, models, stored.store())
    if lacking:
        named = plain(" and ".join(map(naming.now().model, lacking)))
        st.caption(f"{what_for}{named}, which are not on this machine yet.")
        background.offer(
            view.work("representations", {"models": lacking}),
            "Get the representations",
            "Runs the models on the stimuli, in the background; some seconds for a small model.",
        )
    return bool(lacking)


def has_pairs(view: View) -> bool:
    """Whether there are two layers to compare; a message where there are not."""
    if len(view.layers) < 2:
        st.info("There is one layer: no two to compare.", icon=":material/info:")
    return len(view.layers) > 1


def pair_of_layers(view: View) -> tuple[str, str]:
    """Pair of layers "model:layer" that the tabs on two layers look at."""
    asked = (
        ("First layer", "a", "One of the two layers that are compared."),
        ("Second layer", "b", "The other one."),
    )
    chosen, called = [], naming.of_all_layers()
    for place, first, (label, name, help) in zip(
        st.columns(2), _first_look(view), asked, strict=True
    ):
        with place:
            more = {"format_func": called, "help": help}
            chosen.append(choices.choose_one(label, view.layer_names, name, first, **more))
    return chosen[0], chosen[1]


def _first_look(view: View) -> tuple[str, str]:
    """The two layers that are looked at before any are chosen."""
    first = view.once("first look", lambda: view.analysis.most_alike(view.layers))
    a, b = map(layer_name, first or ())
    return a, b
