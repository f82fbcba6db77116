"""Comparison of arrays by their features, without a file or a store."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.model_source import EVERY
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import ScratchFolder
from mlem_core.base.typing import Layer
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.inference.explanation_text import Explanation
from mlem_core.stimuli.neural_rows import neural_rows
from mlem_core.stimuli.stimulus_csv import from_frame
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store

# Names of the files that the arrays are in.
_MODEL, _DISTANCES, _SUBJECTS = "array", "distances", "subjects"


@dataclass(frozen=True, repr=False)
class ArrayComparison:
    """Arrays compared by the features of their rows; made by `compare`.

    Attributes
    ----------
    analysis : the `Analysis`, whose layers are the arrays
    layers : (model, layer) in the analysis, by the array's name; those of subjects have no entry

    Examples
    --------
    >>> X = pd.DataFrame({"size": [1, 2, 3] * 20, "kind": ["a", "b"] * 30})
    >>> found = compare({"V4": X[["size"]], "IT": 2 * X[["size"]]}, X)
    >>> float(found.similarity.loc["V4", "IT"].round(2))
    1.0
    """

    analysis: Analysis
    layers: Mapping[str, Layer]
    _folder: ScratchFolder = field(compare=False)

    def __repr__(self) -> str:
        return repr(self.analysis)

    @property
    def plot(self) -> Any:
        """Figures, as `analysis.plot` has them: `.plot.profiles()`."""
        return replace(self.analysis.plot, store=self.context.store)

    @property
    def context(self) -> SelectionContext:
        """All layers of the analysis with the store of what is computed of them."""
        return SelectionContext.from_analysis(self.analysis, Store(self._folder.path))

    @property
    def importance(self) -> pd.DataFrame:
        """Mean drop of the held-out ρ over folds: a row a feature, a column an array."""
        results = self.analysis.results()
        table = results.importance.pivot_table(
            index="feature", columns=["model", "layer"], values="importance", sort=False
        )
        return table[[*self.layers.values()]].set_axis([*self.layers], axis=1)

    @property
    def similarity(self) -> pd.DataFrame:
        """RSA: Spearman ρ of the distances in every two arrays, square."""
        names = [*self.layers]
        at = [self.analysis.layers.index(layer) for layer in self.layers.values()]
        return pd.DataFrame(self.analysis.rsa[np.ix_(at, at)], names, names)

    def why(self, a: str, b: str, *, intervals: bool = False) -> Explanation:
        """Explanation of the similarity of two arrays, with 95 % confidence intervals if wanted.

        Raises InputError for a name that no array has.
        """
        for name in (a, b):
            check_choice("array", name, self.layers)
        why = explain(self.analysis, self.layers[a], self.layers[b])
        return with_intervals(why, self.analysis, Store(self._folder.path)) if intervals else why


def compare(
    arrays: Mapping[str, ArrayLike],
    X: StimulusSet | pd.DataFrame,
    *,
    subjects: Mapping[str, Sequence[ArrayLike]] | None = None,
    distances: Collection[str] = (),
    **choices: Any,
) -> ArrayComparison:
    """Comparison of arrays of the same stimuli by the features of these.

    Parameters
    ----------
    arrays : (n_stimuli, n_units) each, by name: regions, networks, layers; the rows of a
        DataFrame are matched with the index of X
    X : features, a column each and a row a stimulus; a column `sentence_id` keeps stimuli together
        in folds and intervals
    subjects : an array (n_stimuli, n_units) for each subject, by the name of a region: the arrays
        are then models beside these subjects, see `mlem_core.beside_subjects`
    distances : names of arrays and regions that hold distances, (n_stimuli, n_stimuli) or condensed
        (n_pairs,), in the place of units; of regions all or none
    choices : fields of `AnalysisSpec`, such as distance="cosine"

    Raises
    ------
    InputError
        Arrays or features that cannot be used, or names of rows that are not those of X; a choice
        that does not exist.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"animal": rng.permutation([True, False] * 30), "size": rng.choice(3, 60)})
    >>> V4 = np.c_[X["size"], 0.2 * rng.random((60, 2))]
    >>> IT = np.c_[3 * X["animal"], X["size"], 0.2 * rng.random((60, 2))]
    >>> found = compare({"V4": V4, "IT": IT}, X)
    >>> found.importance.idxmax().to_dict()
    {'V4': 'size', 'IT': 'animal'}
    >>> found.why("V4", "IT").features["term"].tolist()
    ['animal', 'size']
    """
    regions = {} if subjects is None else subjects
    for named in (arrays, regions):
        if not isinstance(named, Mapping) or not (arrays or regions):
            raise InputError(f"found {type(named).__name__} for arrays; expected {{name: array}}.")
    for name in distances:
        check_choice("array of distances", name, [*arrays, *regions])
    stimuli, folder = _stimuli(X), ScratchFolder("compare")
    files = {
        _MODEL: {name: array for name, array in arrays.items() if name not in distances},
        _DISTANCES: {name: array for name, array in arrays.items() if name in distances},
        _SUBJECTS: {name: _stacked(name, members, X) for name, members in regions.items()},
    }
    files = {file: by_name for file, by_name in files.items() if by_name}
    for file, by_name in files.items():
        named = {name: _array(name, array, X) for name, array in by_name.items()}
        np.savez(folder.path / f"{file}.npz", **named)
    are_distances = {name in distances for name in regions}
    if len(are_distances) > 1:
        raise InputError("some regions hold distances and others do not; expected all or none.")
    precomputed = (_DISTANCES,) * (_DISTANCES in files) + (_SUBJECTS,) * (are_distances == {True})
    spec = AnalysisSpec(
        representations=tuple((file, str(folder.path / f"{file}.npz")) for file in files),
        precomputed=precomputed,
        subjects=((_SUBJECTS, EVERY),) * (_SUBJECTS in files),
        **choices,
    )
    analysis = run(spec, Store(folder.path), False, stimuli)
    layers = {name: layer for layer, name in analysis.layer_names.items() if layer[0] in files}
    return ArrayComparison(analysis, layers, folder)


def _stacked(name: str, subjects: Sequence[ArrayLike], X: StimulusSet | pd.DataFrame) -> Any:
    rows = [neural_rows(subject, X, f"a subject of {name!r}") for subject in subjects]
    if len({array.shape for array in rows}) != 1 or len(rows) < 2:
        shapes = " and ".join(dict.fromkeys(str(array.shape) for array in rows)) or "none"
        raise InputError(
            f"the subjects of {name!r} have the shape {shapes}; expected two subjects or more of "
            "one shape; where their units differ, give distances."
        )
    return np.stack(rows)


def _array(name: str, array: ArrayLike, X: StimulusSet | pd.DataFrame) -> Any:
    if not isinstance(name, str) or re.fullmatch(r"layer_\d+", name):
        raise InputError(f"an array is called {name!r}; expected a name of its own, such as 'V4'.")
    return neural_rows(array, X, f"the array {name!r}")


def _stimuli(X: StimulusSet | pd.DataFrame) -> StimulusSet:
    if isinstance(X, StimulusSet):
        return X
    if not isinstance(X, pd.DataFrame):
        raise InputError(
            f"X is of the type {type(X).__name__}; expected a pandas DataFrame or a StimulusSet, "
            "with a column a feature."
        )
    named = {"sentence", "stimulus"} & {*X.columns}
    table = X if named else X.assign(stimulus=[f"stimulus {n}" for n in range(1, len(X) + 1)])
    return from_frame(table, "the given features")
