"""What telling values apart gains and costs, from 100 to all stimuli, over unseen words too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.base import RidgeMLEM
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.stimuli import datasets
from mlem_core.stimuli.folds import fold_groups, group_folds
from validation.layers import FOLDS, STIMULI, rows_of
from validation.made_pairs import statistics_of
from validation.work import Row, Task

MODEL, LAYERS = "minilm", (0, 3, 6)
# Words, and how many draws of sentences with so many.
SIZES = {100: 10, 300: 5, 1000: 2, 2040: 1}
CODINGS: dict[str, tuple[str, ...]] = {
    "0/1": (),
    "part_of_speech": ("part_of_speech",),
    "all": ("all",),
}
OVER = ("sentences", "items")
# A truth in which values are not told apart: values a feature, and how far apart they are.
EQUALLY_APART = {"a": (7, 1.0), "b": (4, 0.7), "c": (2, 1.0), "d": (9, 0.0)}


def sample(n: int, draw: int) -> IntArray:
    """(n,) rows of so many words, of sentences drawn at random; the last sentence is cut."""
    groups = datasets.load(STIMULI).groups
    drawn = np.random.default_rng([n, draw]).permutation(np.unique(groups))
    rows = np.concatenate([np.flatnonzero(groups == group) for group in drawn])
    return np.sort(rows[:n])


def _scores(pairs: PairStatistics, about: Row, names: Sequence[object]) -> list[Row]:
    fits = RidgeMLEM().cross_validate(pairs)
    return [
        about
        | {
            "layer": name,
            "rho": float(rho),
            "strength": float(np.median(strength)),
            "columns": len(pairs.columns),
        }
        for name, rho, strength in zip(names, fits.rho.mean(axis=1), fits.alpha, strict=True)
    ]


def of_words(n: int, draw: int) -> list[Row]:
    """The codings on some of the probing words."""
    kept = sample(n, draw)
    stimuli = datasets.load(STIMULI).take(kept)
    layers = [rows_of(MODEL, layer)[kept].astype(np.float64) for layer in LAYERS]
    rows: list[Row] = []
    for over in OVER:
        try:
            folds = group_folds(fold_groups(stimuli, over), FOLDS, draw, over)
        except InputError:
            continue  # no word recurs in so few sentences
        for coding, resolved in CODINGS.items():
            about = {"study": "words", "stimuli": n, "draw": draw, "over": over, "coding": coding}
            rows += _scores(statistics_of(stimuli, layers, folds, resolved), about, LAYERS)
    return rows


def planted(n: int, draw: int) -> list[Row]:
    """The codings where no two values are further apart than others: nothing to be gained."""
    rng = np.random.default_rng([n, draw, 1])
    features, parts = {}, []
    for name, (size, apart) in EQUALLY_APART.items():
        values = rng.integers(0, size, n)
        features[name] = np.array([f"v{value}" for value in values])
        parts.append(apart * np.eye(size)[values])
    layer = np.concatenate(parts, axis=1)
    layers = [np.concatenate((layer, sd * rng.standard_normal((n, 20))), 1) for sd in (0.2, 0.6)]
    folds = group_folds(np.arange(n), FOLDS, draw)
    return [
        row
        for coding, resolved in {"0/1": (), "all": ("all",)}.items()
        for row in _scores(
            statistics_of(pd.DataFrame(features), layers, folds, resolved),
            {"study": "planted", "stimuli": n, "draw": draw, "over": "stimuli", "coding": coding},
            ("noise 0.2", "noise 0.6"),
        )
    ]


def feature_by_feature() -> list[Row]:
    """Each feature resolved alone, on all words: which feature's gain it is."""
    stimuli = datasets.load(STIMULI)
    layers = [rows_of(MODEL, layer).astype(np.float64) for layer in LAYERS]
    folds = group_folds(stimuli.groups, FOLDS, 0)
    rows: list[Row] = []
    for resolved in ((), *((feature.name,) for feature in stimuli.features)):
        about = {"study": "one", "stimuli": len(stimuli), "draw": 0, "over": "sentences"}
        about |= {"coding": resolved[0] if resolved else "0/1"}
        rows += _scores(statistics_of(stimuli, layers, folds, resolved), about, LAYERS)
    return rows


def psd_cost(pairs: PairStatistics, weights: FloatArray) -> FloatArray:
    """What it costs in held-out ρ to have separations that are distances of points.

    The metric on one-hot codes that is positive semi-definite has separations of negative type:
    squared distances of points in some space. Those of every feature are projected onto the
    nearest such matrix, by cutting off the negative eigenvalues of the double-centred one.

    Parameters
    ----------
    pairs : statistics of n_layers layers, with features that are coded by value
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`

    Returns
    -------
    (n_layers, n_folds) ρ of the weights as they are less that of the projected ones

    Source: Schoenberg 1935; Jalouzot et al. 2024, section 2.1.
    """
    projected, columns = weights.copy(), pairs.columns
    for feature, names in enumerate(columns.value_names):
        if names:
            numbers = np.flatnonzero(columns.first_feature == feature)
            separations = numbers[: len(names) * (len(names) - 1) // 2]
            projected[..., separations] = of_negative_type(weights[..., separations], len(names))
    cost = np.empty(weights.shape[:2])
    for fold in range(pairs.n_folds):
        both = np.stack((weights[:, fold], projected[:, fold]), axis=1)
        free, bound = pairs.tests.folds[fold].scores(both).rho.T
        cost[:, fold] = free - bound
    return cost


def of_negative_type(separations: FloatArray, n_values: int) -> FloatArray:
    """The nearest separations (..., n_pairs) that are squared distances of points.

    Nearest in the Frobenius norm of the double-centred matrix; pairs of different values are in the
    order of `np.triu_indices(n_values, 1)`.
    """
    first, second = np.triu_indices(n_values, 1)
    squares = np.zeros((*separations.shape[:-1], n_values, n_values))
    squares[..., first, second] = squares[..., second, first] = separations
    centre = np.eye(n_values) - 1 / n_values
    values, vectors = np.linalg.eigh(-centre @ squares @ centre / 2)
    products = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    norms = np.diagonal(products, axis1=-2, axis2=-1)
    squared = norms[..., :, None] + norms[..., None, :] - 2 * products
    return np.maximum(squared[..., first, second], 0.0)


def of_points() -> list[Row]:
    """What it costs that separations of values be squared distances of points, on all words."""
    stimuli = datasets.load(STIMULI)
    layers = [rows_of(MODEL, layer).astype(np.float64) for layer in LAYERS]
    folds = group_folds(stimuli.groups, FOLDS, 0)
    found: list[Row] = []
    for coding, resolved in list(CODINGS.items())[1:]:
        pairs = statistics_of(stimuli, layers, folds, resolved)
        fits = RidgeMLEM().cross_validate(pairs)
        cost = psd_cost(pairs, fits.weights)
        for layer, rho, own in zip(LAYERS, fits.rho.mean(axis=1), cost, strict=True):
            about = {"study": "points", "coding": coding, "layer": layer}
            found.append(about | {"rho": float(rho), "cost": own.mean(), "most": own.max()})
    return found


def with_noise() -> list[Row]:
    """What labels that mean nothing earn of the RSA of layers 3 and 6 when their values are told
    apart: a column of noise, and part of speech dealt out anew."""
    stimuli = datasets.load(STIMULI)
    names = [feature.name for feature in stimuli.features]
    own = stimuli.table[names]
    own = own.astype({f.name: object for f in stimuli.features if f.kind == "nominal"})
    rng = np.random.default_rng(0)
    noise = np.array([f"v{value}" for value in rng.integers(0, 8, len(own))])
    dealt = rng.permutation(own["part_of_speech"].to_numpy())
    cases: dict[str, tuple[pd.DataFrame, tuple[str, ...]]] = {
        "0/1": (own, ()),
        "part_of_speech": (own, ("part_of_speech",)),
        "part_of_speech and noise": (own.assign(noise=noise), ("part_of_speech", "noise")),
        "part_of_speech dealt out anew": (own.assign(part_of_speech=dealt), ("part_of_speech",)),
    }
    layers = [rows_of(MODEL, layer).astype(np.float64) for layer in LAYERS[1:]]
    folds = group_folds(stimuli.groups, FOLDS, 0)
    found: list[Row] = []
    for case, (table, resolved) in cases.items():
        pairs = statistics_of(table, layers, folds, resolved)
        terms = decompose(pairs.moments).pair(0, 1).set_index("term")["value"]
        found.append(
            {"study": "noise", "stimuli": len(table), "coding": case}
            | {"columns": len(pairs.columns)}
            | {f"term {name}": terms[name] for name in ("part_of_speech", UNEXPLAINED)}
            | {"term noise": terms.get("noise", np.nan)}
        )
    return found


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Held-out ρ of each coding by size and folds, of each feature alone, and of the planted truth.

    In brackets the least difference to 0/1 in any draw.
    """
    found = {}
    for name, study in (("values", "words"), ("values planted", "planted")):
        own = rows[rows["study"] == study]
        key = ["stimuli", "over", "layer", "draw"]
        base = own[own["coding"] == "0/1"].set_index(key)["rho"]
        at = pd.MultiIndex.from_frame(own[key])
        own = own.assign(gain=own["rho"].to_numpy() - base.reindex(at).to_numpy())
        cells: dict[str, dict[str, str]] = {}
        for (n, over, layer, coding), part in own.groupby(
            ["stimuli", "over", "layer", "coding"], sort=False
        ):
            draws = part["draw"].nunique()
            text = f"{part['rho'].mean():.3f}"
            if coding != "0/1":
                text += f" ({part['gain'].min():+.3f})"
            row = f"{int(n):,} ({draws} {'draw' if draws == 1 else 'draws'}), over {over}"
            label = f"layer {layer}" if study == "words" else str(layer)
            cells.setdefault(row, {})[f"{label}: {coding}"] = text
        found[name] = pd.DataFrame(cells).T.rename_axis("stimuli")
    one = rows[rows["study"] == "one"]
    wide = one.pivot_table(index="coding", columns="layer", values="rho", sort=False)
    wide.insert(0, "columns", one.groupby("coding")["columns"].first())
    wide = wide.rename(columns=lambda name: name if name == "columns" else f"layer {name}")
    as_text = {name: "{:,.0f}" if name == "columns" else "{:.3f}" for name in wide}
    found["values alone"] = pd.DataFrame(
        {name: wide[name].map(text.format) for name, text in as_text.items()}
    ).rename_axis("coded by value")
    noise = rows[rows["study"] == "noise"].set_index("coding").rename_axis("coded by value")
    shown = noise[["columns", "term part_of_speech", "term noise", f"term {UNEXPLAINED}"]]
    found["values and noise"] = shown.map(
        lambda v: "" if np.isnan(v) else f"{v:,.0f}" if v > 1 else f"{round(v, 3) + 0.0:.3f}"
    )
    points = rows[rows["study"] == "points"]
    texts = [
        f"{round(cost, 4) + 0.0:.4f} ({round(most, 4) + 0.0:.4f})"
        for cost, most in zip(points["cost"], points["most"], strict=True)
    ]
    wide = points.assign(text=texts).pivot(index="coding", columns="layer", values="text")
    found["values of points"] = wide.rename(
        columns=lambda layer: f"layer {float(layer):.0f}"
    ).rename_axis("coded by value")
    return found


def tasks(quick: bool) -> list[Task]:
    """A task a draw."""
    found = [
        Task(f"{name} {n} {draw}", call, (n, draw))
        for n, draws in SIZES.items()
        for draw in range(draws)
        for name, call in (("words", of_words), ("planted", planted))
    ]
    return (
        found[:2]
        if quick
        else [
            *found,
            Task("one", feature_by_feature, ()),
            Task("noise", with_noise, ()),
            Task("points", of_points, ()),
        ]
    )
