"""Two layers by a similarity that has no terms: one turned onto the other, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import check_layers
from mlem_core.analysis.similarities import Compared
from mlem_core.base.brief import as_html
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.text import number
from mlem_core.base.typing import Counted, FloatArray, Layer
from mlem_core.inference.jackknife import REFITS, Estimate, jackknife
from mlem_core.inference.resample import check_enough, in_parts
from mlem_core.pairs.resampling_units import StimulusUnits, Units
from mlem_core.pairs.similarities import Similarity


@dataclass(frozen=True)
class Alignment:
    """How far one layer can be turned onto another.

    Attributes
    ----------
    layers : the two, (model, layer)
    similarity : which
    whole : quantity (the name of the similarity), value, and lower, upper (95 % interval) if
        stimuli were left out
    held_out : on what the layers were compared, see
        `mlem_core.pairs.resampling_units.Units.held_out`
    others : what intervals speak of, see `mlem_core.pairs.resampling_units.Units.others`
    notes : sentences about how far this holds
    names : what models and layers are called in words
    TABLES : those that change where it gets its interval
    """

    TABLES: ClassVar = ("whole",)

    layers: tuple[Layer, Layer]
    similarity: Similarity
    whole: pd.DataFrame
    held_out: str
    others: str
    notes: tuple[str, ...] = ()
    names: Names = field(default_factory=Names)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return as_html(repr(self), (), self.whole)

    @property
    def finding(self) -> str:
        """How alike the two layers are, without a full stop."""
        a, b = map(self.names.layer_title, self.layers)
        value = number(float(self.whole["value"].iloc[0]))
        return f"The {self.similarity.called} of {a} and {b} is {value}"

    @property
    def meaning(self) -> str:
        """What the number says, two sentences of which the first goes on after a colon."""
        return (
            "one is turned onto the other by some stimuli, and the two are compared on others "
            f"({self.held_out}). Layers that have nothing to do with each other have 0 on average."
        )

    @property
    def headline(self) -> str:
        """What was found and what it says."""
        return f"{self.finding}: {self.meaning}"

    @property
    def how_sure(self) -> str:
        """What other stimuli would change, in a sentence; empty without an interval."""
        if "lower" not in self.whole:
            return ""
        low, high = (number(float(self.whole[end].iloc[0])) for end in ("lower", "upper"))
        return f"How sure: {self.others} would put it between {low} and {high} (95 % interval)."

    @property
    def text(self) -> str:
        """All that is said of it."""
        return " ".join(filter(None, (self.headline, self.how_sure, self.similarity.no_terms)))


def aligned_interval(
    similarity: Similarity,
    layers: Sequence[FloatArray],
    units: StimulusUnits,
    seed: int = 0,
    progress: Counted | None = None,
) -> Estimate:
    """A similarity without terms: (1,).

    Each block of sentences (and of words, where they recur) is left out of what one layer is turned
    by and of what the two are compared on. The components stay those of all stimuli.

    Parameters
    ----------
    layers : (n_stimuli, n_components) of both, see `mlem_core.pairs.alignments`
    progress : called with the number of blocks left out and their total

    Raises
    ------
    InputError
        Too few sentences.
    """
    aligned, (one, other) = similarity.aligned, layers
    assert aligned is not None
    check_enough(len(np.unique(units.groups)))
    blocks = units.blocks(REFITS, np.random.default_rng(seed))

    def left_out(rows: NDArray[np.bool_]) -> FloatArray:
        return np.array([[aligned(one, other, np.where(rows[0], units.folds, -1))]])

    (value,) = left_out(np.ones((1, len(units.folds)), dtype=bool))
    without = in_parts(left_out, blocks.weights > 0, progress=progress)
    return jackknife(value, without, blocks.sizes, (-1.0, 1.0))


def alignment(analysis: Analysis, layers: Sequence[Layer], compared: Compared) -> Alignment:
    """Two layers of an analysis by a similarity that has no terms.

    Parameters
    ----------
    compared : all layers by this similarity, see `mlem_core.analysis.similarities.compared`

    Raises
    ------
    InputError
        A layer that the analysis does not have; a similarity that has terms.
    """
    check_layers(layers, analysis.layers)
    similarity = compared.similarity
    if similarity.aligned is None:
        raise InputError(f"the {similarity.called} has terms by feature; ask why two layers.")
    a, b = (compared.layers.index(layer) for layer in layers)
    whole = pd.DataFrame({"quantity": [similarity.name], "value": [compared.values[a, b]]})
    units = Units.of(analysis.stimuli)
    held_out = units.held_out(analysis.spec.folds_over)
    return Alignment((layers[0], layers[1]), similarity, whole, held_out, units.others)
