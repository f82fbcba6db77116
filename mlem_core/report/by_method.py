"""Figures of other methods on the same layers: their scores, whether two agree, the baselines."""

from __future__ import annotations

from functools import partial

from mlem_core import figures
from mlem_core.analysis import baselines, methods
from mlem_core.base.typing import layer_name
from mlem_core.report import captions, captions_of_methods
from mlem_core.report.shown import Drawn, Shown, figure, held_out
from mlem_core.robustness import noise


@figure(
    "methods",
    "Prediction accuracy by method",
    "How well each method predicts the distances of unseen stimuli; no function of these features "
    "gets above the ceiling.",
    takes_long=True,
)
def scores(shown: Shown) -> Drawn | None:
    """Figure S9 of Jalouzot et al. (2024); None where none that takes long has been computed."""
    store = shown.drawing.store
    if store is None:
        return None
    of = shown.analysis, store, shown.selection
    found, others = methods.results_by_method(*of), baselines.with_rho(*of)
    # Like every figure of what takes long it is not in a capsule of which nothing was asked.
    asked = shown.drawing.screen or others
    if not asked and not set(found) & set(methods.slow(shown.analysis, shown.selection)):
        return None
    table = methods.scores(found, others)
    return Drawn(
        figures.method_scores(table, shown.results.scores, methods.NAMES, shown.across),
        "Prediction accuracy by method",
        captions_of_methods.method_scores(shown.computed_on),
        table,
        table.groupby(["model", "layer", "method"], sort=False)["rho"]
        .mean()
        .unstack()
        .reset_index()
        .rename(columns=methods.NAMES),
    )


@figure(
    "method_agreement",
    "MLEM and FR-RSA, layer by layer",
    "Whether both fit the same weights, and whether they order the features alike.",
    takes_long=True,
)
def agreement(shown: Shown) -> Drawn | None:
    """Figure S7 of Jalouzot et al. (2024); None where one of the two has not been computed."""
    store = shown.drawing.store
    if store is None:
        return None
    found = methods.results_by_method(shown.analysis, store, shown.selection)
    if not set(methods.COMPARED) <= set(found):
        return None
    table = methods.agreement(*(found[name] for name in methods.COMPARED))
    means = table.groupby(["model", "layer"], sort=False)[["frobenius", "tau"]].mean()
    return Drawn(
        figures.method_agreement(table, 1 if shown.drawing.narrow else 2),
        "MLEM and FR-RSA, layer by layer",
        captions_of_methods.method_agreement(shown.computed_on),
        table,
        means.reset_index(),
    )


@figure(
    "noise_agreement",
    "MLEM and FR-RSA under noise",
    "Whether both still fit the same weights, and order the features alike, when a layer is noisy.",
    takes_long=True,
)
def noise_agreement(shown: Shown) -> Drawn | None:
    """Figure S8 of Jalouzot et al. (2024); None where it has been computed for no layer.

    Of the layer that is chosen, else of the first that is shown of which it has been computed.
    """
    store, analysis = shown.drawing.store, shown.analysis
    chosen = shown.drawing.options.get("noisy", "")
    layers = [one for one in shown.selection.layers if layer_name(one) == chosen]
    if store is None:
        return None
    for layer in layers or shown.selection.layers:
        table = noise.find_noise(analysis, store, shown.selection, layer)
        if table is None:
            continue
        means = table.groupby("noise")[["frobenius", "tau"]].mean()
        title = shown.names.layer_title(layer)
        return Drawn(
            figures.noise_agreement(table, 1 if shown.drawing.narrow else 2),
            f"MLEM and FR-RSA with noise in {title}",
            captions_of_methods.noise_agreement(title, shown.computed_on),
            table,
            means.reset_index(),
        )
    return None


@figure(
    "unit_scores",
    "Single units and the whole layer",
    "How well single units are predicted, and how well the whole layer: the farther apart, the "
    "more the features are in patterns over units.",
    takes_long=True,
)
def units(shown: Shown) -> Drawn | None:
    """Figure S12 of Jalouzot et al. (2024); None where the units have not been fitted."""
    store = shown.drawing.store
    table = None
    if store is not None:
        table = baselines.find(shown.analysis, "univariate", store, shown.selection.layers)
    if table is None:
        return None
    return Drawn(
        figures.unit_scores(table, shown.results.scores, shown.across),
        "Metric models of single units, and of the whole layer",
        captions_of_methods.unit_scores(shown.computed_on),
        table,
        methods.units(table, shown.results),
    )


_BASELINES = {
    "decoding": ("accuracy above chance (Δ)", "Decoding of each feature"),
    "random-forest": ("permutation importance (PI)", "Random forests that predict the units"),
    "univariate": ("prediction accuracy (held-out ρ)", "Metric models of single units"),
}


def baseline(shown: Shown, name: str) -> Drawn | None:
    """The same layers by another method; None where it has not been computed."""
    store, analysis = shown.drawing.store, shown.analysis
    table = None
    if store is not None:
        table = baselines.find(analysis, name, store, shown.selection.layers)
    if table is None:
        return None
    names = shown.all_features
    if name == "univariate":
        names = ["mean over units"]
        means = table.groupby(["model", "layer", "fold"], sort=False)["rho"].mean()
        drawn = means.rename("importance").reset_index().assign(feature=names[0])
        scores = drawn[["model", "layer", "fold"]]
    else:
        drawn = table[table["feature"].isin(shown.selection.features)]
        if name == "decoding":
            drawn = drawn.assign(importance=drawn["accuracy"] - drawn["majority"])
        scores = drawn.drop_duplicates(["model", "layer", "fold"])
    value, title = _BASELINES[name]
    on = captions.computed_on(shown.results.n_stimuli, 0, shown.results.n_folds, held_out(analysis))
    return Drawn(
        figures.profiles(drawn, scores, names, across=shown.across, value=value),
        title,
        captions.baseline(name, on),
        table,
    )


for _name in _BASELINES:
    figure(
        f"baseline_{_name.replace('-', '_')}",
        "The layers by another method",
        "The same layers by another method.",
        takes_long=True,
    )(partial(baseline, name=_name))
