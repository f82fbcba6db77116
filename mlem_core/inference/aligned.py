"""Two layers by a similarity that has no terms: one turned onto the other, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, key_of
from mlem_core.analysis.selection import Selection, check_layers
from mlem_core.analysis.similarities import Compared, rows_of
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.repr_html import as_html
from mlem_core.base.text import number
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer
from mlem_core.inference import caveats
from mlem_core.inference.jackknife import REFITS, jackknife_interval
from mlem_core.inference.similarity_terms import TermsInterval, check_sentences, in_turn
from mlem_core.pairs.alignments import components
from mlem_core.pairs.similarities import Similarity
from mlem_core.pairs.units import Units, blocks_left_out
from mlem_core.storage.stage import Stage, Tables, load_tables, save_tables
from mlem_core.storage.store import Store

_STAGE = Stage("alignment-interval", 1, save_tables, load_tables)


@dataclass(frozen=True)
class Alignment:
    """How far one layer can be turned onto another.

    Attributes
    ----------
    layers : the two, (model, layer)
    similarity : which
    whole : quantity (the name of the similarity), value, and lower, upper (95 % interval) if
        stimuli were left out
    held_out : on what the layers were compared, see `mlem_core.pairs.units.Units.held_out`
    others : what intervals speak of, see `mlem_core.pairs.units.Units.others`
    notes : sentences about how far this holds
    names : what models and layers are called in words
    """

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


class Together(NamedTuple):
    """Which stimuli stay together.

    folds : (n_stimuli,) the fold that leaves a stimulus out
    groups : (n_stimuli,) its sentence
    items : (n_stimuli,) its word; None where none recurs
    """

    folds: IntArray
    groups: IntArray
    items: IntArray | None = None


def aligned_interval(
    similarity: Similarity,
    layers: Sequence[FloatArray],
    together: Together,
    seed: int = 0,
    progress: Counted | None = None,
) -> TermsInterval:
    """A similarity without terms, and what other stimuli would change of it.

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
    aligned, (one, other), (folds, groups, items) = similarity.aligned, layers, together
    assert aligned is not None
    check_sentences(len(np.unique(groups)))
    blocks = blocks_left_out(groups, items, REFITS, np.random.default_rng(seed))

    def values(kept: NDArray[np.bool_]) -> FloatArray:
        return np.array([aligned(one, other, np.where(kept, folds, -1))])

    value, without = values(np.ones(len(folds), dtype=bool)), in_turn(values, blocks, progress)
    return TermsInterval(value, jackknife_interval(value, without, -1.0, 1.0, sizes=blocks.sizes))


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


def with_interval(
    found: Alignment,
    analysis: Analysis,
    store: Store,
    seed: int = 0,
    progress: Counted | None = None,
) -> Alignment:
    """The same with its confidence interval.

    Raises
    ------
    InputError
        As `aligned_interval`; representations that are no longer in the store.
    """
    layers = [components(rows_of(analysis, layer, store)()) for layer in found.layers]
    stimuli = analysis.stimuli
    together = Together(analysis.folds, stimuli.groups, stimuli.items)
    interval = aligned_interval(found.similarity, layers, together, seed, progress).interval
    whole = found.whole.assign(lower=interval.lower, upper=interval.upper)
    return replace(found, whole=whole, notes=caveats.of_size(Units.of(stimuli)))


def kept_interval(
    found: Alignment, analysis: Analysis, store: Store, progress: Counted | None = None
) -> Alignment:
    """The same with its confidence interval, which is kept in the store."""

    def make() -> Tables:
        made = with_interval(found, analysis, store, progress=progress)
        notes = pd.DataFrame({"note": list(made.notes)}, dtype=object)
        return {"whole": made.whole, "notes": notes}

    return _with_tables(found, _STAGE.get(store, _key(found, analysis), make))


def best_known(found: Alignment, analysis: Analysis, store: Store) -> Alignment:
    """The same with its confidence interval, where `kept_interval` has made one."""
    tables = _STAGE.find(store, _key(found, analysis))
    return found if tables is None else _with_tables(found, tables)


def _key(found: Alignment, analysis: Analysis) -> dict[str, Any]:
    """What the interval depends on; no feature, and no metric model."""
    chosen = Selection((), found.layers, "", False)
    return key_of(analysis, chosen) | {"similarity": found.similarity.name}


def _with_tables(found: Alignment, tables: Tables) -> Alignment:
    return replace(found, whole=tables["whole"], notes=tuple(tables["notes"]["note"]))
