"""The tables of an analysis, recomputed from its pair statistics, and how they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.pair_errors import none
from mlem_core.base.files import replacing_files
from mlem_core.base.labels import NAMES
from mlem_core.base.parameters import Registry
from mlem_core.base.text import Lines, as_html, as_lines, fraction, listed, many, pair_count
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.extending import entry_modules
from mlem_core.measures import similarity
from mlem_core.measures.importance import Fits, fitted, most_important
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.stimuli.stimulus_csv import write_table


@dataclass(frozen=True)
class ResultTable:
    """A table that an extension adds to every result for which it has rows.

    Attributes
    ----------
    name : of its file
    compute : the table, from pair statistics, the weights of their columns (n_layers, n_folds,
        n_columns) and (model, layer) of each layer
    """

    name: str
    compute: Callable[[PairStatistics, FloatArray, Sequence[Layer]], pd.DataFrame]


RESULT_TABLES = Registry[ResultTable]("result table", entry_modules)


@dataclass(frozen=True)
class Results:
    """Everything that an analysis says, as tidy tables.

    Attributes
    ----------
    scores : model, layer, fold, rho, rho_a, ceiling, alpha (held-out, a row a layer and fold)
    importance : model, layer, fold, feature, importance (drop of the held-out ρ)
    weights : model, layer, fold, feature, weight (fitted on that fold's training stimuli)
        With interactions "a × b" stands among the features for the product of two, in both.
    folds : stimulus (row of the CSV from 0), fold (that tests it; -1 where none does, see
        `mlem_core.stimuli.folds`)
    similarity_profiles : weighted Kendall τ of the importance profiles, square, "model:layer"
    similarity_rsa : Spearman ρ of the neural distances, square, "model:layer"
    layers : (model, layer) of each layer, in the order of the squares
    agreement : Spearman ρ of the upper triangles of the two similarity tables
    feature_correlations : Pearson correlations of the feature distances, square
    added_tables : those of extensions that have rows, by their file names, see `ResultTable`
    resolved : the features that are resolved by value
    coding : how the features of two stimuli are coded, in words that follow "coded"
    n_stimuli, n_pairs, n_folds : what it was computed on
    pair_errors : as of `mlem_core.analysis.analysis.Analysis`

    Examples
    --------
    >>> analysis.results().importance.columns.tolist()
    ['model', 'layer', 'fold', 'feature', 'importance']
    """

    scores: pd.DataFrame
    importance: pd.DataFrame
    weights: pd.DataFrame
    folds: pd.DataFrame
    similarity_profiles: pd.DataFrame
    similarity_rsa: pd.DataFrame
    layers: list[Layer]
    agreement: float
    feature_correlations: pd.DataFrame
    added_tables: dict[str, pd.DataFrame]
    resolved: tuple[str, ...]
    coding: str
    n_stimuli: int
    n_pairs: int
    n_folds: int
    pair_errors: pd.DataFrame = field(default_factory=none)

    def _lines(self) -> tuple[str, Lines]:
        models = list(dict.fromkeys(model for model, _ in self.layers))
        n_layers, n_models = many(len(self.layers), "layer"), many(len(models), "model")
        pairs = pair_count(self.n_pairs, self.n_stimuli)
        title = f"Results of {n_layers} of {n_models} ({listed(models, most=4)})"
        rho = self.scores.groupby(["model", "layer"])["rho"].mean()
        best = NAMES.layer_title((str(rho.idxmax()[0]), int(rho.idxmax()[1])))
        means = self.importance.groupby("feature", sort=False)["importance"].mean()
        first = means.sort_values(ascending=False, kind="stable")
        features = [f"{name} {fraction(value)}" for name, value in first.items()]
        tables = (
            "scores, importance, weights, folds, similarity_profiles, similarity_rsa, layer_map"
        )
        return title, [
            ("computed on", f"{self.n_stimuli:,} stimuli, {pairs}"),
            ("features", f"{len(self.feature_correlations)}, coded {self.coding}"),
            (
                "held-out ρ",
                f"{fraction(rho.min())} to {fraction(rho.max())}, highest in {best} (mean over "
                f"{many(self.n_folds, 'fold')})",
            ),
            ("importance", f"{listed(features, most=4)} (mean over layers and folds)"),
            ("tables", tables),
        ]

    def __repr__(self) -> str:
        return as_lines(*self._lines())

    def _repr_html_(self) -> str:
        return as_html(*self._lines())

    @property
    def n_profile_features(self) -> int:
        """Number of values in an importance profile: features, and interactions if weighed."""
        return int(self.importance["feature"].nunique())

    def most_important(self, features: Sequence[str]) -> str:
        """Name of the feature that matters most, see `mlem_core.measures.importance`."""
        profiles = self.importance.pivot_table(
            index=["model", "layer"], columns="feature", values="importance"
        )
        return most_important(profiles[list(features)])

    @cached_property
    def layer_map(self) -> pd.DataFrame:
        """measure ("profiles" or "rsa"), model, layer, x, y: metric MDS of 1 − similarity."""
        maps = []
        for measure, apart in self._dissimilarities.items():
            points = similarity.mds_map(apart)
            place = {"x": points[:, 0], "y": points[:, 1]}
            maps.append(_long(self.layers, place).assign(measure=measure))
        return pd.concat(maps, ignore_index=True)[["measure", "model", "layer", "x", "y"]]

    @cached_property
    def map_stress(self) -> dict[str, float]:
        """Stress of the map by measure, see `mlem_core.measures.similarity.map_stress`."""
        points = self.layer_map.set_index("measure")[["x", "y"]]
        return {
            measure: similarity.map_stress(apart, points.loc[[measure]].to_numpy(dtype=np.float64))
            for measure, apart in self._dissimilarities.items()
        }

    @property
    def _dissimilarities(self) -> dict[str, FloatArray]:
        squares = {"profiles": self.similarity_profiles, "rsa": self.similarity_rsa}
        return {name: 1.0 - one.to_numpy(dtype=np.float64) for name, one in squares.items()}

    def write(self, folder: Path | str, manifest: dict[str, Any]) -> list[str]:
        """Write `tables` as `write_tables` does."""
        return write_tables(folder, self.tables(), manifest)

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the command line's contract by their file names."""
        pair_errors = {} if self.pair_errors.empty else {"pair_errors.csv": self.pair_errors}
        return {
            "scores.csv": self.scores,
            "importance.csv": self.importance,
            "weights.csv": self.weights,
            "folds.csv": self.folds,
            "similarity_profiles.csv": _with_names(self.similarity_profiles),
            "similarity_rsa.csv": _with_names(self.similarity_rsa),
            "layer_map.csv": self.layer_map,
            **self.added_tables,
            **pair_errors,
        }


def write_tables(
    folder: Path | str,
    tables: Mapping[str, pd.DataFrame],
    manifest: dict[str, Any],
    command: str = "analyze",
) -> list[str]:
    """Write tables by their file names, and manifest.json, which appear together or not at all.

    The tables of another analysis that the same command has written there are taken out before;
    those of the same analysis, and what another command has written, stay beside. A folder that is
    not there is made.

    Returns the tables of another analysis that stay, as another command has written them.
    """
    target = Path(folder)
    names = {*tables}
    same, before, options = _tables_there(target / "manifest.json", manifest)
    of_command = before.get(command, set())
    with replacing_files(target, "manifest.json", of_command - same - names) as unfinished:
        for name in sorted(names):
            write_table(tables[name], unfinished / name, synced=False)
        written = {other: its - names for other, its in before.items()}
        written[command] = names | (of_command & same)
        options |= manifest.get("options", {})
        listed = {
            **manifest,
            **({"options": options} if options else {}),
            "tables": sorted(names | same),
            "written": {by: sorted(its) for by, its in sorted(written.items()) if its},
        }
        # A file's name in no encoding becomes \udcff, which JSON reads as it was.
        text = json.dumps(listed, indent=2, ensure_ascii=False)
        path = unfinished / "manifest.json"
        path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    return sorted(set().union(*written.values()) - names - same)


def _tables_there(
    path: Path, manifest: Mapping[str, Any]
) -> tuple[set[str], dict[str, set[str]], dict[str, Any]]:
    """Tables that a folder's manifest lists and the folder has; none where it lists none.

    Returns those of the same analysis, all by the command that wrote them, and the options of those
    of the same analysis.
    """

    def there(names: Any) -> set[str]:
        safe = {str(name) for name in names if re.fullmatch(r"[\w-]+\.csv", str(name))}
        return {name for name in safe if (path.parent / name).is_file()}

    try:
        kept = json.loads(path.read_bytes())
        tables = there(kept.pop("tables"))
        written = {str(one): there(its) for one, its in kept.pop("written", {}).items()}
        options = dict(kept.pop("options", {}))
        new = json.loads(json.dumps(manifest))
        new.pop("options", None)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return set(), {}, {}
    of_none = tables.difference(*written.values())
    written = {**written, "": of_none} if of_none else written
    same = {**kept, "machine": None} == {**new, "machine": None}
    return tables if same else set(), written, options if same else {}


def _with_names(square: pd.DataFrame) -> pd.DataFrame:
    return square.rename_axis("layer").reset_index()


def _long(layers: Sequence[Layer], values: dict[str, FloatArray], **by: Sequence[Any]) -> Any:
    """Tidy table of arrays (n_layers, n_folds, ...) with a column for each axis."""
    axes = [range(len(layers)), *by.values()]
    index = pd.MultiIndex.from_product(axes, names=["at", *by])
    frame = pd.DataFrame({name: array.ravel() for name, array in values.items()}, index=index)
    frame = frame.reset_index()
    at = frame.pop("at").to_numpy()
    frame.insert(0, "model", np.array([model for model, _ in layers], dtype=object)[at])
    frame.insert(1, "layer", np.array([layer for _, layer in layers], dtype=np.int64)[at])
    return frame


def results_from_statistics(
    pairs: PairStatistics,
    layers: Sequence[Layer],
    folds: IntArray,
    estimator: str = "ridge",
    fits: Fits | None = None,
) -> Results:
    """Fit, score, permute and compare all layers from their pair statistics.

    Parameters
    ----------
    pairs : statistics of n_layers layers
    layers : (model, layer) of each
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`
    estimator : name, see `mlem_core.estimators.registry`
    fits : of these pairs by this estimator, where they have been computed before
    """
    fold_fits, importance = fitted(pairs, estimator) if fits is None else fits
    columns, parts, rsa = pairs.columns.names, pairs.columns.parts, pairs.moments.rsa
    tau = similarity.weighted_tau(importance.mean(axis=1))
    names, features = [layer_name(layer) for layer in layers], list(pairs.features)
    correlations = similarity.correlations_of_features(pairs.moments)
    by = {"fold": range(pairs.n_folds)}
    tables = {
        table.name: table.compute(pairs, fold_fits.weights, layers)
        for table in RESULT_TABLES.values()
    }
    scores = {name: getattr(fold_fits, name) for name in ("rho", "rho_a", "ceiling", "alpha")}
    return Results(
        scores=_long(layers, scores, **by),
        importance=_long(layers, {"importance": importance}, **by, feature=parts),
        weights=_long(layers, {"weight": fold_fits.weights}, **by, feature=columns),
        folds=pd.DataFrame({"stimulus": np.arange(len(folds)), "fold": np.maximum(folds, -1)}),
        similarity_profiles=pd.DataFrame(tau, index=names, columns=names),
        similarity_rsa=pd.DataFrame(rsa, index=names, columns=names),
        layers=list(layers),
        agreement=similarity.agreement(tau, rsa),
        feature_correlations=pd.DataFrame(correlations, index=features, columns=features),
        added_tables={name: table for name, table in tables.items() if not table.empty},
        resolved=pairs.resolved,
        coding=pairs.columns.coding,
        n_stimuli=pairs.moments.n_stimuli,
        n_pairs=pairs.n_pairs,
        n_folds=pairs.n_folds,
    )
