"""Comparison of arrays by their features, without a file or a store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlem_core.analysis.analysis import Analysis
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

_MODEL = "array"


@dataclass(frozen=True, repr=False)
class ArrayComparison:
    """Arrays compared by the features of their rows; made by `compare`.

    Attributes
    ----------
    analysis : the `Analysis`, whose layers are the arrays
    layers : (model, layer) in the analysis, by the array's name

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
        return self.analysis.plot

    @property
    def importance(self) -> pd.DataFrame:
        """Mean drop of the held-out ρ over folds: a row a feature, a column an array."""
        results = self.analysis.results()
        table = results.importance.pivot_table(
            index="feature", columns="layer", values="importance", sort=False
        )
        return table[[layer for _, layer in self.layers.values()]].set_axis([*self.layers], axis=1)

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
    arrays: Mapping[str, ArrayLike], X: StimulusSet | pd.DataFrame, **choices: Any
) -> ArrayComparison:
    """Comparison of arrays of the same stimuli by the features of these.

    Parameters
    ----------
    arrays : (n_stimuli, n_units) each, by name: regions, networks, layers; the rows of a
        DataFrame are matched with the index of X
    X : features, a column each and a row a stimulus; a column `sentence_id` keeps stimuli together
        in folds and intervals
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
    if not isinstance(arrays, Mapping) or not arrays:
        raise InputError(f"found {type(arrays).__name__} for arrays; expected {{name: array}}.")
    stimuli = _stimuli(X)
    folder = ScratchFolder("compare")
    path = folder.path / "arrays.npz"
    np.savez(path, **{name: _array(name, array, X) for name, array in arrays.items()})
    spec = AnalysisSpec(representations=((_MODEL, str(path)),), **choices)
    analysis = run(spec, Store(folder.path), False, stimuli)
    layers = {name: layer for layer, name in analysis.layer_names.items()}
    return ArrayComparison(analysis, layers, folder)


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
