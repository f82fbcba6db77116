"""Confidence intervals of what is known of all layers: the data and its files.

`mlem_core.inference.layer_intervals` computes them, `mlem_core.inference.tables` shows them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlem_core.analysis.selection import check_layers
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA


class Left(NamedTuple):
    """A value without each block of stimuli, as `jackknife.standard_error` takes it.

    without : (n_blocks, ...)
    sizes : how many of the blocks are of each kind of unit
    """

    without: FloatArray
    sizes: tuple[int, ...]

    def moves(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """How far the value moves with other stimuli, (n, ...), as the jackknife says it varies.

        Each block moves it by a random multiple of what it does when it is left out. With two kinds
        of units what sentences and items do; what both have in common is in both.

        Returns
        -------
        and (...) the variance of the moves
        """
        shape = self.without.shape[1:]
        moved, variance = np.zeros((n, *shape)), np.zeros(shape)
        for part in np.split(self.without, np.cumsum(self.sizes)[:-1])[:2]:
            blocks = len(part)
            away = (part - part.mean(axis=0)) * np.sqrt((blocks - 1) / blocks)
            moved += np.tensordot(rng.standard_normal((n, blocks)), away, axes=1)
            variance += (away**2).sum(axis=0)
        return moved, variance


@dataclass(frozen=True)
class LayerIntervals:
    """What is known of n_layers layers, with confidence intervals over sentences and words.

    Attributes
    ----------
    layers : (model, layer) of each
    features, columns : of the terms; of the importances (interactions among them)
    estimator : of the metric models
    scores, scores_lower, scores_upper : (n_layers, 2 + n_columns) ρ, ceiling and importances
    scores_without : (n_blocks, n_layers, 2 + n_columns) without each block of stimuli
    tau, tau_lower, tau_upper : (n_layers, n_layers)
    values : (n_layers, n_layers) of `similarity`; values_without : (n_blocks, n_layers, n_layers)
    terms, terms_error : (n_features + 1, n_layers, n_layers) the terms, the last one
        "unexplained", and their standard errors; none with more than 12 features, or where the
        similarity has no terms
    ceilings, ceilings_error : (n_layers,) cross-fitted feature ceilings of all pairs
    partial_error : (2, n_layers, n_layers) standard errors of S_feat and S_rest, NaN where a block
        leaves none; (0, ...) where `terms` is
    units : what was drawn
    sizes : how many of the n_blocks blocks are of each kind of unit, see
        `mlem_core.inference.jackknife.standard_error`
    similarity : its name, see `mlem_core.pairs.similarities`
    """

    layers: tuple[Layer, ...]
    features: tuple[str, ...]
    columns: tuple[str, ...]
    estimator: str
    scores: FloatArray
    scores_lower: FloatArray
    scores_upper: FloatArray
    scores_without: FloatArray
    tau: FloatArray
    tau_lower: FloatArray
    tau_upper: FloatArray
    values: FloatArray
    values_without: FloatArray
    terms: FloatArray
    terms_error: FloatArray
    ceilings: FloatArray
    ceilings_error: FloatArray
    partial_error: FloatArray
    units: Units
    sizes: tuple[int, ...]
    similarity: str = RSA

    def places(self, layers: Sequence[Layer] | None = None) -> list[int]:
        """Where layers stand (None: all); InputError for one that is not there."""
        if layers is None:
            return list(range(len(self.layers)))
        check_layers(layers, self.layers)
        place = {layer: at for at, layer in enumerate(self.layers)}
        return [place[layer] for layer in layers]


_ARRAYS, _ABOUT = "error_bars.npz", "about.json"
_OF_LAYERS = (
    *("scores", "scores_lower", "scores_upper", "scores_without"),
    *("ceilings", "ceilings_error"),
)
# Symmetric, with what stands on their diagonals.
_OF_PAIRS = {
    **dict.fromkeys(("tau", "tau_lower", "tau_upper", "values", "values_without"), 1.0),
    **dict.fromkeys(("terms", "terms_error", "partial_error"), 0.0),
}
# What they are called in the file, where that is otherwise.
_IN_FILE = {"values": "rsa", "values_without": "rsa_without"}


def save(intervals: LayerIntervals, folder: Path | str) -> None:
    """Write intervals into an existing folder: one .npz and one JSON."""
    names = ("layers", "features", "columns", "estimator", "sizes", "similarity")
    about = {name: getattr(intervals, name) for name in names} | {"units": asdict(intervals.units)}
    (Path(folder) / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
    upper = np.triu_indices(len(intervals.layers), 1)
    arrays = {name: getattr(intervals, name) for name in _OF_LAYERS}
    arrays |= {name: getattr(intervals, name)[..., upper[0], upper[1]] for name in _OF_PAIRS}
    np.savez_compressed(
        Path(folder) / _ARRAYS,
        # What is left without each block is many numbers, and only their spread is used.
        **{
            _IN_FILE.get(name, name): array.astype(
                np.float32 if name.endswith("without") else np.float64
            )
            for name, array in arrays.items()
        },
    )


def load(folder: Path | str) -> LayerIntervals:
    """Read what `save` wrote."""
    about = json.loads((Path(folder) / _ABOUT).read_text(encoding="utf-8"))
    layers = tuple((str(model), int(number)) for model, number in about["layers"])
    with np.load(Path(folder) / _ARRAYS, allow_pickle=False) as stored:
        arrays = {name: stored[name].astype(np.float64) for name in _OF_LAYERS}
        n = len(layers)
        for name, diagonal in _OF_PAIRS.items():
            triangle = stored[_IN_FILE.get(name, name)].astype(np.float64)
            arrays[name] = _square(triangle, n, diagonal)
    return LayerIntervals(
        layers=layers,
        features=tuple(about["features"]),
        columns=tuple(about["columns"]),
        estimator=str(about["estimator"]),
        units=Units(**about["units"]),
        sizes=tuple(int(size) for size in about["sizes"]),
        similarity=str(about.get("similarity", RSA)),
        **arrays,
    )


def _square(triangle: FloatArray, n: int, diagonal: float) -> FloatArray:
    """(..., n_pairs) upper triangles as symmetric squares (..., n, n)."""
    upper = np.triu_indices(n, 1)
    square = np.full((*triangle.shape[:-1], n, n), diagonal)
    square[..., upper[0], upper[1]] = square[..., upper[1], upper[0]] = triangle
    return square
