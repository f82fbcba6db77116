"""View of an analysis: what the user keeps of it, its results, and the two layers looked at."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.layer_sources import missing_representations
from mlem_core.analysis.similarities import LayerSimilarity
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.extending import contributions
from mlem_core.figures.context import FigureContext, FigureOptions
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.storage.store import Store
from mlem_core.tasks.access import view_only
from mlem_core.tasks.followups import Followup, get_followup
from pages.parts import background, choices, stored
from pages.parts.choices import inform, plain


class Memory(dict[Hashable, Any]):
    """Memory of a thousand things; the oldest are forgotten."""

    def __setitem__(self, key: Hashable, value: Any) -> None:
        super().__setitem__(key, value)
        while len(self) > 1_000:
            self.pop(next(iter(self)), None)


@stored.kept(64)
def _memory(store: Store, job_id: str) -> Memory:
    """Memory of what was computed of an analysis, whatever of it is selected."""
    return Memory()


# What is chosen beside figures, by the name of the option that it is of a figure.
OPTIONS = {
    "color": "colour",
    "feature": "valued",
    "order": "order",
    **{
        name: name
        for place in (*contributions("screens"), *contributions("panels"))
        for name in place.choices
    },
}


@dataclass(frozen=True)
class View(SelectionContext):
    """What the user selects of the analysis that a view shows.

    Attributes
    ----------
    job_id : of the analysis, see `mlem_core.tasks.analyses.find`
    """

    job_id: str = ""

    @property
    def features(self) -> list[str]:
        """Kept by the user, in the order of the analysis."""
        return list(self.selection.features)

    @property
    def layers(self) -> list[Layer]:
        """(model, layer) kept by the user."""
        return list(self.selection.layers)

    @property
    def layer_names(self) -> list[str]:
        """ "model:layer" of each kept layer."""
        return [layer_name(layer) for layer in self.layers]

    def shown(self, **options: str) -> FigureContext:
        """Context of the view's figures, by what is chosen now; `options` stand beside that."""
        drawing = FigureOptions(
            self.chosen_pair, names=stored.names(), options=self.options(**options), screen=True
        )
        of = self.analysis, self.selection, self.store
        return FigureContext(*of, patient=self.patient, memory=self.memory, drawing=drawing)

    def options(self, **more: str) -> dict[str, str]:
        """Chosen options of figures, without empty ones."""
        said = {name: choices.get_one(choice) for name, choice in OPTIONS.items()} | more
        return {name: value for name, value in said.items() if value}

    def work(self, kind: str, options: Mapping[str, Any]) -> Followup:
        """Work on the analysis that goes on in the background, whether it was started or not."""
        return get_followup(kind, self.job_id, options, stored.store())

    @property
    def chosen_pair(self) -> tuple[Layer, Layer] | None:
        """The two different layers that all pages look at; None where there is one layer."""
        a, b = self.pair
        return None if a == b else (parse_layer(a), parse_layer(b))

    @property
    def pair(self) -> tuple[str, str]:
        """The two different layers "model:layer" that all pages look at."""
        defaults = _first_look(self)
        a, b = (choices.get_one(name, one) for name, one in zip("ab", defaults, strict=True))
        there = self.layer_names
        return (a, b) if a != b and {a, b} <= {*there} else defaults


def open_view(
    job_id: str, selection: Selection | None = None, *, in_part: bool = False
) -> View | None:
    """A finished analysis, by default all of it; None while it is fitted, unless `in_part`."""
    analysis = stored.open_analysis(job_id)
    chosen = analysis.select() if selection is None else selection
    patient, store = view_only() and not estimator_named(chosen.estimator).slow, stored.store()
    memory = _memory(store, job_id)
    view = View(analysis, chosen, store, patient=patient, memory=memory, job_id=job_id)
    # What stands below keeps its place when the fits arrive.
    with st.container():
        if view.awaits_fits:
            task = view.work("fits", view.all_layers.selection.to_dict())
            if not task.folder.exists() and not view_only():
                task.begin()
            st.caption("Importances with these features are being fitted; all else is shown.")
            background.offer(task, "Fit the importances", "Fits all layers, in the background.")
    return view if in_part or not view.awaits_fits else None


def lacks(job_id: str, analysis: Analysis, models: Sequence[str], what_for: str) -> bool:
    """Whether representations of some models are not here; if so, it offers to make them.

    Parameters
    ----------
    what_for : begins the sentence that then names the models
    """
    lacking = missing_representations(analysis, models, stored.store())
    if lacking:
        named = plain(stored.names().models_title(lacking))
        st.caption(f"{what_for}{named}, which are not on this machine yet.")
        background.offer(
            get_followup("representations", job_id, {"models": lacking}, stored.store()),
            "Get the representations",
            "Runs the models on the stimuli, in the background; some seconds for a small model.",
        )
    return bool(lacking)


def has_pairs(view: View) -> bool:
    """Whether there are two layers to compare; a message where there are not."""
    if len(view.layers) < 2:
        inform("There is one layer: no two to compare.")
    return len(view.layers) > 1


def _first_look(view: View) -> tuple[str, str]:
    """The two layers that are looked at before any are chosen."""
    pair = view.once("first look", lambda: view.analysis.most_alike(view.layers))
    a, b = map(layer_name, pair)
    return a, b


def choose_similarity(view: View) -> LayerSimilarity:
    """Let the user choose the similarity that is looked at beside τ; all layers by it.

    RSA where it is not computed yet; then there is the button that computes it.
    """
    meanings = " ".join(f"{one.short}: {one.meaning}." for one in SIMILARITIES.values())
    name = choices.choose_one(
        "By distances",
        list(SIMILARITIES),
        "similarity",
        RSA,
        format_func=lambda name: SIMILARITIES[name].label,
        help=f"What two layers are compared by, beside their features. {meanings}",
    )
    of_layers = compared_layers(view)
    if name != of_layers.similarity.name:
        similarity = SIMILARITIES[name]
        st.caption(f"The {similarity.called} has not been computed yet; what is shown is RSA.")
        background.offer(
            view.work("similarity", {"name": name}),
            f"Compute {similarity.short}",
            "Compares all pairs of stimuli in every layer again, in the background; about a second "
            "a layer, and models are run again whose representations are no longer there.",
        )
    return of_layers


def chosen_similarity() -> str:
    """The name of the similarity that is looked at."""
    name = choices.get_one("similarity", RSA)
    return name if name in SIMILARITIES else RSA


def compared_layers(view: View) -> LayerSimilarity:
    """All layers by the similarity that is looked at; by RSA where it is not computed yet."""
    return view.shown(similarity=chosen_similarity()).layer_similarity


def select_pair(view: View, a: str, b: str) -> None:
    """Make two layers "model:layer" the pair that all pages look at."""
    choices.open_job(view.job_id)  # it may be shown without having been chosen
    choices.put_all({"a": [a], "b": [b]})
