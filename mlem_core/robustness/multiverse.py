"""Multiverse of an analysis: the results under every reasonable choice, to test claims in.

A universe is one combination of choices (distance, estimator, policy for missing values, with or
without position 0 ...). All are run on stored representations, for the layers in question only.

Source: Steegen et al. (2016), multiverse analysis; Simonsohn et al. (2020), specification curve.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.analysis.run import run, run_ahead
from mlem_core.analysis.similarities import LayerSimilarity, compared
from mlem_core.analysis.spec import AnalysisSpec, parameters, with_files, with_models
from mlem_core.analysis.transforms import POSITIONS
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import Layer, Report, counting
from mlem_core.estimators.registry import ESTIMATORS, check_values, every_estimator
from mlem_core.measures.importance import mean_scores
from mlem_core.measures.similarity import pairs_of_layers, weighted_tau
from mlem_core.models import tokens
from mlem_core.pairs.columns import MISSING
from mlem_core.pairs.distances import PRECOMPUTED, metrics
from mlem_core.pairs.similarities import RSA
from mlem_core.storage.store import Stage, Store

Choices = Mapping[str, Sequence[str]]


def dimensions() -> dict[str, tuple[str, ...]]:
    """Choices that may be varied, in the order of the columns, and all their values."""
    described = parameters()
    varied = ("units", "positions", "special_tokens", "pooling", "missing", "estimator")
    labels = {name: [one for one in described[name].labels if one != "auto"] for name in varied}
    return {"distance": metrics(), **{name: tuple(its) for name, its in labels.items()}}


@dataclass(frozen=True)
class Multiverse:
    """Results of some layers in every universe.

    Attributes
    ----------
    universes : universe (from 0), a column for each dimension that varies, own (whether it is the
        analysis itself)
    layers : universe, model, layer, rho (held-out), top (most important feature), order (all
        features from the most to the least important, "a > b > c")
    importance : universe, model, layer, feature, importance (mean over folds)
    similarity : universe, model_a, layer_a, model_b, layer_b, rsa, other similarities, tau
    notices : sentences about universes that there are not
    """

    universes: pd.DataFrame
    layers: pd.DataFrame
    importance: pd.DataFrame
    similarity: pd.DataFrame
    notices: tuple[str, ...]

    @property
    def dimensions(self) -> list[str]:
        """The dimensions that vary."""
        return [name for name in self.universes.columns if name in dimensions()]

    @property
    def measures(self) -> list[str]:
        """Measures that two layers are compared by: similarities, and "tau"."""
        columns = list(self.similarity.columns)
        return columns[columns.index("layer_b") + 1 :]

    @property
    def written(self) -> dict[str, pd.DataFrame]:
        """The tables by the names of their files."""
        more = {name: getattr(self, name) for name in ("layers", "importance", "similarity")}
        named = {f"universe_{name}.csv": table for name, table in more.items()}
        return {"universes.csv": self.universes, **named}


STAGE = Stage("multiverse", 2, Multiverse)


def choices_of(analysis: Analysis) -> dict[str, tuple[str, ...]]:
    """The dimensions that matter for an analysis, each with its choices.

    Every distance, and every estimator that can be used without a further package; both policies
    for missing values where a value is missing; with and without position 0 where some but not all
    stimuli are there. Units, special tokens and pooling can be varied too (`dimensions`), but are
    not by default: the last two run the models again, see `analysis_poolings`.
    """
    found: dict[str, tuple[str, ...]] = {}
    if analysis.spec.distance != PRECOMPUTED:
        found["distance"] = metrics()
    index = analysis.whole.word_index
    if index is not None and 2 < np.count_nonzero(index) < len(index):
        found["positions"] = tuple(POSITIONS)
    names = [feature.name for feature in analysis.whole.features]
    if any(pd.isna(analysis.whole.values(name)).any() for name in names):
        found["missing"] = tuple(MISSING)
    resolved = bool(analysis.spec.values)
    found["estimator"] = tuple(
        name for name in every_estimator() if ESTIMATORS[name].resolves or not resolved
    )
    return found


def analysis_poolings(analysis: Analysis) -> tuple[str, ...]:
    """Poolings for the stimuli of an analysis, words or sentences; one for files."""
    return (
        tuple(tokens.poolings_of(analysis.whole.level)) if analysis.spec.models else ("standard",)
    )


def find_multiverse(
    analysis: Analysis,
    layers: Sequence[Layer],
    store: Store,
    choices: Choices | None = None,
    similarities: Sequence[str] = (RSA,),
) -> Multiverse | None:
    """The multiverse of some layers if it is in the store or came with it; computes nothing."""
    return STAGE.find(store, multiverse_key(analysis, layers, choices, similarities))


def multiverse(
    analysis: Analysis,
    layers: Sequence[Layer],
    store: Store,
    choices: Choices | None = None,
    progress: Report | None = None,
    similarities: Sequence[str] = (RSA,),
) -> Multiverse:
    """Some layers of an analysis under every combination of choices; kept in the store.

    Raises InputError: a layer that the analysis does not have, an unknown dimension or choice, no
    universe left.

    Parameters
    ----------
    layers : of the analysis
    choices : dimension (of `dimensions`) to choices; what is not in it stays as in the analysis.
        None is `choices_of`
    progress : called as the work goes on; what it raises stops the work
    similarities : by which layers are compared, of `mlem_core.pairs.similarities.SIMILARITIES`
    """
    report = progress or (lambda _: None)
    return STAGE.get(
        store,
        multiverse_key(analysis, layers, choices, similarities),
        lambda: _multiverse(analysis, layers, choices, store, report, similarities),
    )


def _checked(
    analysis: Analysis, layers: Sequence[Layer], choices: Choices | None
) -> dict[str, tuple[str, ...]]:
    if not layers:
        raise InputError("no layer is chosen; choose at least one.")
    check_layers(layers, analysis.layers)
    asked = choices_of(analysis) if choices is None else choices
    there = dimensions()
    for name, values in asked.items():
        check_choice("choice to vary", name, there)
        for value in values:
            check_choice(name.replace("_", " "), value, there[name])
    for estimator in asked.get("estimator", ()):
        check_values(estimator, analysis.spec.values, analysis.spec.interactions)
    varied = {}
    for name in there:
        own = getattr(analysis.spec, name)
        if name in asked and set(asked[name]) - {own}:
            # The analysis itself is always one of them, and the first.
            varied[name] = tuple(dict.fromkeys((own, *asked[name])))
    return varied


def multiverse_key(
    analysis: Analysis,
    layers: Sequence[Layer],
    choices: Choices | None = None,
    similarities: Sequence[str] = (RSA,),
) -> dict[str, Any]:
    """Key of the multiverse of some layers; raises as `multiverse`.

    RSA is not named where it is the only similarity.
    """
    varied = _checked(analysis, layers, choices)
    own = replace(analysis.select(), layers=tuple(layers))
    others = {} if list(similarities) == [RSA] else {"similarities": list(similarities)}
    return analysis.key(own, whole=analysis.whole.digest, varied=varied, **others)


def narrowed(spec: AnalysisSpec, layers: Sequence[Layer]) -> AnalysisSpec:
    """The analysis of as little as has these layers.

    Raises InputError: a layer of a model that is not in the analysis.
    """
    names = [*spec.models, *(name for name, _ in spec.representations)]
    for model, _ in layers:
        check_choice("model of a layer", model, names)
    models = {model for model, _ in layers}
    files = [pair for pair in spec.representations if pair[0] in models]
    own = with_models(with_files(spec, files), [name for name in spec.models if name in models])
    return replace(own, layers=tuple(sorted({number for _, number in layers})))


def _multiverse(
    analysis: Analysis,
    layers: Sequence[Layer],
    choices: Choices | None,
    store: Store,
    report: Report,
    similarities: Sequence[str],
) -> Multiverse:
    own, varied = narrowed(analysis.spec, layers), _checked(analysis, layers, choices)
    # Estimators share the pair tables, so they vary fastest and need no run of their own.
    runs = {name: values for name, values in varied.items() if name != "estimator"}
    estimators = varied.get("estimator", (own.estimator,))
    rows: list[dict[str, Any]] = []
    tables: dict[str, list[pd.DataFrame]] = {}
    notices = []
    combinations: list[dict[str, Any]] = [
        dict(zip(runs, values, strict=True)) for values in itertools.product(*runs.values())
    ]
    specs = [replace(own, **chosen) for chosen in combinations]
    told, ahead = counting(report, "multiverse", "runs"), 0

    def counted(done: int) -> None:
        """Report runs that are done, by workers or here."""
        nonlocal ahead
        told(ahead := max(ahead, done), len(specs))

    counted(0)
    run_ahead(specs, store, counted)
    for done, (chosen, spec) in enumerate(zip(combinations, specs, strict=True), 1):
        try:
            universe = run(spec, store, progress=False)
            if not set(layers) <= set(universe.layers):
                raise InputError(" ".join(universe.notices))
            by = [compared(universe, name, store) for name in similarities]
        except InputError as error:
            named = ", ".join(f"{name} {value}" for name, value in chosen.items())
            notices.append(f"There is no universe with {named}: {error}")
            continue
        for estimator in estimators:
            number = len(rows)
            choice = chosen | ({"estimator": estimator} if "estimator" in varied else {})
            ours = all(getattr(own, name) == value for name, value in choice.items())
            rows.append({"universe": number, **choice, "own": ours})
            for name, table in _universe(universe, layers, estimator, by).items():
                table.insert(0, "universe", number)
                tables.setdefault(name, []).append(table)
        counted(done)
    if not rows:
        raise InputError("there is no universe at all: " + " ".join(notices))
    columns = ["universe", *varied, "own"]
    joined = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    return Multiverse(pd.DataFrame(rows)[columns], **joined, notices=tuple(notices))


def _universe(
    universe: Analysis, layers: Sequence[Layer], estimator: str, by: Sequence[LayerSimilarity]
) -> dict[str, pd.DataFrame]:
    # In the order that was asked for, not that of the analysis.
    selection = replace(universe.select(estimator=estimator), layers=tuple(layers))
    tables, _ = universe.subset(selection)
    squares = {of_layers.similarity.name: of_layers.values_of(layers) for of_layers in by}
    scores, terms = mean_scores(tables, estimator), np.array(tables.columns.parts, dtype=object)
    profiles = scores[:, 2:]
    tau, ends = weighted_tau(profiles), pd.DataFrame(layers, columns=["model", "layer"])
    orders = [terms[np.argsort(-profile, kind="stable")] for profile in profiles]
    each = ends.merge(pd.DataFrame({"feature": terms}), how="cross")
    return {
        "layers": ends.assign(
            rho=scores[:, 0],
            top=[order[0] for order in orders],
            order=[" > ".join(order) for order in orders],
        ),
        "importance": each.assign(importance=profiles.ravel()),
        "similarity": pairs_of_layers(layers, **squares, tau=tau),
    }
