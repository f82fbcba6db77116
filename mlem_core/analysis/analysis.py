"""A finished analysis: the pairs of its stimuli, and what is selected of them to be shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis import pair_errors
from mlem_core.analysis.planning import Choice, fold_choices
from mlem_core.analysis.results import Results, results_from_statistics
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.files import checked
from mlem_core.base.labels import Names
from mlem_core.base.parameters import split_names
from mlem_core.base.text import Later, Lines, as_html, as_lines, listed, many, pair_count, span
from mlem_core.base.typing import FloatArray, IntArray, Layer, Layers, layer_name, parse_layers
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures.importance import Fits, fitted
from mlem_core.measures.similarity import Candidates, candidates, most_alike
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.stimuli.folds import folds_over, untested_items
from mlem_core.stimuli.presentation import times_in_lags
from mlem_core.stimuli.stimulus_set import StimulusSet


@dataclass(frozen=True)
class Selection:
    """Part of an analysis that is shown, and the methods it is shown by.

    Attributes
    ----------
    features : names, in the order of the analysis
    layers : (model, layer), in the order of the analysis
    estimator : name, see `mlem_core.estimators.registry`
    interactions : whether products of two features are weighed too
    similarity : by which layers are compared beside their features, see
        `mlem_core.pairs.similarities`
    """

    features: tuple[str, ...]
    layers: tuple[Layer, ...]
    estimator: str
    interactions: bool
    similarity: str = RSA

    def checked(self, features: Sequence[str], layers: Sequence[Layer]) -> Selection:
        """Selection in the order of the features and layers that there are.

        Raises InputError: a feature, layer, estimator or similarity that there is not; no feature
        or layer.
        """
        for name in self.features:
            check_choice("feature", name, features)
        kept = {*self.layers}
        check_layers(self.layers, dict.fromkeys(layers))
        estimator_named(self.estimator)
        SIMILARITIES.named(self.similarity)
        for what, chosen in (("feature", self.features), ("layer", self.layers)):
            if not chosen:
                raise InputError(f"no {what} is left; choose at least one.")
        return replace(
            self,
            features=tuple(name for name in features if name in self.features),
            layers=tuple(layer for layer in layers if layer in kept),
        )

    def select_statistics(self, pairs: PairStatistics, layers: Sequence[Layer]) -> PairStatistics:
        """Pair statistics of the selection, from those of n_layers layers.

        Raises InputError: interactions that these statistics do not have.
        """
        if self.interactions and not pairs.interactions:
            raise InputError(
                "products of two features are columns of their own, and this analysis has none; "
                "run it with interactions."
            )
        selected = pairs.select_layers(self.places(layers)).select_features(self.features)
        return selected if self.interactions else selected.drop_interactions()

    def places(self, layers: Sequence[Layer]) -> list[int]:
        """Places of the selected layers among n_layers layers."""
        return [list(layers).index(layer) for layer in self.layers]

    def to_dict(self) -> dict[str, Any]:
        """Dictionary for JSON; RSA is not named, as nothing else was chosen."""
        return {
            "features": list(self.features),
            "layers": [list(layer) for layer in self.layers],
            "estimator": self.estimator,
            "interactions": self.interactions,
            **({} if self.similarity == RSA else {"similarity": self.similarity}),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Selection:
        """Selection from the dictionary of `to_dict`; other entries are left alone.

        Raises InputError: an entry is missing or of another form.
        """
        return checked(cls, kept, "what is chosen of the analysis")


def check_layers(asked: Iterable[Layer], layers: Collection[Layer]) -> None:
    """Raise InputError for a layer that there is not."""
    for layer in asked:
        if layer not in layers:
            raise unknown("layer", layer_name(layer), [layer_name(one) for one in layers])


# Of what a kept result is: of the whole analysis, of what is selected, or of layers alone.
Of = Selection | Sequence[Layer] | None


@dataclass(frozen=True)
class Analysis:
    """A finished run, whose results are computed for whatever is selected of it.

    Attributes
    ----------
    spec : the specification
    stimuli : with the features of the analysis; n_stimuli of them, without those left out
    layers : (model, layer) of each of the n_layers layers
    pairs : statistics of the pairs of stimuli in the n_layers layers
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`
    notices : sentences about what was left out or is not exact
    manifest : everything needed to run it again
    whole : the stimuli as they were given; `rows` says which of them `stimuli` are
    pair_errors : how much the choice of the pairs matters, with all features; see
        `mlem_core.analysis.pair_errors`, no rows where all pairs are compared
    fits : by the estimator of the analysis, where it is fitted to single pairs; else None
    otherwise_coded : statistics of the same pairs in the coding that some folds choose and most do
        not, see `mlem_core.analysis.planning`; None where all choose one
    variance : shares of the variance of each layer, see `mlem_core.pairs.variance_shares`; None of
        analyses of older versions

    Examples
    --------
    >>> analysis.select(layers="m:0").layers
    (('m', 0),)
    """

    spec: AnalysisSpec
    stimuli: StimulusSet
    layers: list[Layer]
    pairs: PairStatistics
    folds: IntArray
    notices: list[str]
    manifest: dict[str, Any]
    whole: StimulusSet
    pair_errors: pd.DataFrame = field(default_factory=pair_errors.none)
    fits: Fits | None = None
    otherwise_coded: PairStatistics | None = None
    variance: pd.DataFrame | None = None

    plot = Later("figures.plots", "AnalysisPlots")

    @property
    def rsa(self) -> FloatArray:
        """(n_layers, n_layers) Spearman ρ of the neural distances."""
        return self.pairs.moments.rsa

    @cached_property
    def design(self) -> PairDesign:
        """Design of the pairs of stimuli that were compared."""
        items = untested_items(self.folds, self.stimuli.groups, self.stimuli.items)
        times = times_in_lags(self.stimuli, self.spec.lag)
        if self.pairs.n_pairs == n_pairs(len(self.stimuli)):
            return PairDesign.complete(len(self.stimuli), items, times)
        design = PairDesign.from_budget(
            self.folds, self.spec.pairs or None, self.spec.seed, items=items, times=times
        )
        return design.without(self.pairs.missing)

    @property
    def lacks_pairs(self) -> str:
        """Why nothing that takes all pairs can be computed: a sentence, "" where it can be."""
        if not len(self.pairs.missing):
            return ""
        return (
            f"found {many(len(self.pairs.missing), 'pair')} of stimuli without a distance; chance, "
            "intervals and other similarities need all pairs, so fill these in, or leave stimuli "
            "out."
        )

    @property
    def layer_names(self) -> dict[Layer, str]:
        """The names that layers of files have in them, such as V1; a numbered layer has none."""
        found = {}
        for model, layer in self.layers:
            names = self.manifest["models"].get(model, {}).get("layer_names", {})
            if str(layer) in names:
                found[model, layer] = str(names[str(layer)])
        return found

    @property
    def names(self) -> Names:
        """Display names of the layers that have names of their own, and of the axes of files."""
        layers = {layer_name(of): name for of, name in self.layer_names.items()}
        return Names(layers=layers, axes=self.spec.axis_names)

    @property
    def rows(self) -> IntArray:
        """(n_stimuli,) the row of each stimulus in the stimuli as they were given, from 0."""
        return self.spec.kept.rows(self.whole)

    def select(
        self,
        features: Sequence[str] | None = None,
        layers: Layers | None = None,
        estimator: str | None = None,
        interactions: bool | None = None,
        similarity: str = RSA,
    ) -> Selection:
        """Selection of features, layers and methods; None takes what the analysis has.

        Parameters
        ----------
        features : names; also as a text, "tense" or "tense,number"
        layers : ("minilm", 3) or "minilm:3", one or several
        similarity : of `mlem_core.pairs.similarities.SIMILARITIES`

        Raises
        ------
        InputError
            A feature, layer, estimator or similarity that there is not; no feature or layer.
        """
        selection = Selection(
            features=self.pairs.features if features is None else split_names(features),
            layers=tuple(self.layers) if layers is None else parse_layers(layers),
            # Which one is chosen was settled in the run.
            estimator=self.spec.estimator if estimator in (None, "auto") else estimator,
            interactions=self.spec.interactions if interactions is None else interactions,
            similarity=similarity,
        )
        return selection.checked(self.pairs.features, self.layers)

    def key(self, of: Of = None, **more: Any) -> dict[str, Any]:
        """Key of a cached result: all that it depends on, see `mlem_core.analysis.context.Stage`.

        Parameters
        ----------
        of : None is the whole analysis; layers alone, where neither the choice of features nor the
            estimator matters
        more : what else it depends on
        """
        selection = self.select() if of is None else of
        if not isinstance(selection, Selection):
            selection = Selection((), tuple(selection), "", False)
        models = self.manifest["models"]
        layers = [[models[model]["identity"], model, layer] for model, layer in selection.layers]
        chosen = {**selection.to_dict(), "layers": layers}
        if len({*fold_choices(self.manifest)}) > 1:
            more["folds_choose"] = fold_choices(self.manifest)
        if len(self.pairs.missing):
            more["missing_pairs"] = self.pairs.missing.tolist()
        return {"stimuli": self.stimuli.identity, **chosen, **self.spec.pair_choices, **more}

    def __repr__(self) -> str:
        return as_lines(*_lines(self))

    def _repr_html_(self) -> str:
        return as_html(*_lines(self))

    def compute_pairs(self, selection: Selection) -> PairStatistics:
        """Pair statistics of a selection; raises as `Selection.select_statistics`."""
        return selection.select_statistics(self.pairs, self.layers)

    def most_alike(
        self, layers: Sequence[Layer] | None = None, values: FloatArray | None = None
    ) -> tuple[Layer, Layer]:
        """The two of these layers (None: of all) that are looked at before any are chosen.

        As `mlem_core.measures.similarity.most_alike` has them, by the similarities `values`
        (n_layers, n_layers) of all layers; None is RSA.

        Raises InputError: a layer that the analysis does not have, or none.
        """
        chosen = self.select(layers=layers).layers
        at = [self.layers.index(layer) for layer in chosen]
        square = (self.rsa if values is None else values)[np.ix_(at, at)]
        return most_alike(square, chosen, *self._files_and_groups)

    def candidates(self, layers: Sequence[Layer], square: FloatArray) -> Candidates:
        """Pairs to choose the most similar from, by the similarities (n_layers, n_layers)."""
        return candidates(square, layers, *self._files_and_groups)

    @property
    def _files_and_groups(self) -> tuple[list[str], Mapping[str, str]]:
        return [name for name, _ in self.spec.representations], self.spec.group_of

    def results(
        self,
        features: Sequence[str] | None = None,
        layers: Layers | None = None,
        estimator: str | None = None,
        interactions: bool | None = None,
    ) -> Results:
        """All tables of a selection, as a run with only these features and layers would give.

        Parameters are those of `select`.

        Raises as `select`; interactions that the analysis does not have.
        """
        return self.compute_results(self.select(features, layers, estimator, interactions))

    def compute_results(self, selection: Selection, fits: Fits | None = None) -> Results:
        """All tables of a selection; `fits` as for `results_from_statistics`."""
        fits = self.compute_fits(selection) if fits is None else fits
        results = results_from_statistics(
            self.compute_pairs(selection), selection.layers, self.folds, selection.estimator, fits
        )
        folds = results.folds.assign(stimulus=self.rows)
        return replace(results, folds=folds, pair_errors=self.pair_errors)

    def has_fits(self, selection: Selection) -> bool:
        """Whether the fits of a selection came with the run."""
        run_selection = self.select(layers=selection.layers, similarity=selection.similarity)
        return self.fits is not None and selection == run_selection

    def compute_fits(self, selection: Selection) -> Fits:
        """Fits of a selection, with scores and importances of a fold by what that fold chose.

        Weights and penalties are those of the choice of most folds. Raises InputError: an estimator
        that is fitted to single pairs, where it is not that of the run.
        """
        estimator, most = selection.estimator, Choice(self.spec.estimator, self.spec.values)
        if estimator_named(estimator).of_pairs:
            if self.fits is None or not self.has_fits(selection):
                raise InputError(
                    f"the estimator {estimator} is fitted to single pairs of stimuli, which take "
                    "the representations again; use FITS.get of mlem_core.analysis.context, or run "
                    "the analysis with it."
                )
            return self.fits.select_layers(selection.places(self.layers))
        fits = fitted(self.compute_pairs(selection), estimator)
        choices = fold_choices(self.manifest) if estimator == most.estimator else []
        for choice in {*choices} - {most}:
            pairs = self.pairs if choice.values == most.values else self.otherwise_coded
            assert pairs is not None
            other = fitted(selection.select_statistics(pairs, self.layers), choice.estimator)
            folds = [fold for fold, of_fold in enumerate(choices) if of_fold == choice]
            fits = fits.with_scores_of(other, folds)
        return fits


def _lines(analysis: Analysis) -> tuple[str, Lines]:
    of_models: dict[str, list[int]] = {}
    for model, layer in analysis.layers:
        of_models.setdefault(model, []).append(layer)
    spec, (n_stimuli, n_features) = analysis.spec, analysis.stimuli.shape
    level = analysis.stimuli.level
    title = f"Analysis of {many(n_stimuli, level)} of {analysis.stimuli.name}"
    lines = []
    for model, layers in of_models.items():
        own = [analysis.layer_names[model, n] for n in layers if (model, n) in analysis.layer_names]
        lines.append((model, listed(own, most=6) if own else f"layers {span(layers)}"))
    if len(lines) > 5:
        lines = [("models", listed([*of_models], most=6)), ("layers", f"{len(analysis.layers)}")]
    lines.append(("features", f"{n_features}: {listed(analysis.pairs.features, most=6)}"))
    lines.append(("coding", analysis.pairs.columns.coding))
    how = f"{spec.estimator}, {spec.distance} distances, {spec.folds} folds over "
    lines.append(("computed with", how + folds_over(analysis.stimuli, spec.folds_over)))
    if analysis.pairs.n_pairs < n_pairs(n_stimuli):
        lines.append(("pairs", pair_count(analysis.pairs.n_pairs, n_stimuli)))
    if analysis.notices:
        lines.append(("notices", f"{len(analysis.notices)}, see .notices"))
    return title, lines


def same_content(model: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a model of a manifest has the weights, or the file, of another, or of facts.

    Of a manifest that names none nobody knows.
    """
    return all(other.get(of) == model[of] for of in ("weights", "sha256", "beside") if of in model)
