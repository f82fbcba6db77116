"""Contributions of features by chance to the similarity of all layers at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Progress, Report
from mlem_core.inference.chance import Chance, chance_at_level
from mlem_core.inference.layer_pairs import PERMUTED, LayerPairs
from mlem_core.inference.similarity_intervals import Comparison
from mlem_core.pairs.designs import n_pairs, resampled_part
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

LAYER_CHANCE = Stage("terms-chance", 1, Chance, compressed=True)
# Ranks and distances of all layers, which are in memory together.
MOST_BYTES = 8 * 2**30


def chance_of_layers(
    analysis: Analysis,
    store: Store,
    selection: Selection | None = None,
    *,
    report: Report | None = None,
) -> Chance | None:
    """Contributions of each feature to every two layers under permuted labels; kept in the store.

    The same permutations for all layers, `PERMUTATIONS` of them.

    Parameters
    ----------
    selection : its features, layers and similarity count; None is the whole analysis
    report : called as the features are done

    Returns
    -------
    None for a similarity without terms

    Raises
    ------
    InputError
        Representations that are no longer in the store; more layers than fit into memory.
    """
    chosen = analysis.select() if selection is None else selection
    similarity, layers, features = SIMILARITIES[chosen.similarity], chosen.layers, chosen.features
    if not similarity.divides:
        return None
    say = report or (lambda _: None)

    def counted(done: int, total: int) -> None:
        say(Progress("permuting labels", None, done, total, "features"))

    def make() -> Chance:
        if not similarity.of_ranks:
            compared = Comparison.of(analysis, similarity, layers, features, store)
            return compared.chance(analysis.stimuli, counted)
        n = min(len(analysis.stimuli), PERMUTED)
        if resampled_part(analysis.design, analysis.folds).is_complete:
            n = len(analysis.stimuli)
        most = MOST_BYTES // (12 * n_pairs(n))
        if len(layers) > most:
            raise InputError(
                f"found {len(layers)} layers; chance is computed for at most {most} of {n:,} "
                "stimuli at once, so choose fewer layers."
            )
        pairs = LayerPairs.of_sample(analysis, layers, store, features, False)
        return chance_at_level(pairs, analysis.stimuli, progress=counted)

    return LAYER_CHANCE.get(store, chance_key(analysis, chosen), make)


def known_layer_chance(
    analysis: Analysis, store: Store | None, selection: Selection
) -> Chance | None:
    """`chance_of_layers` where it is kept; that of all layers answers for any of them."""
    if store is None:
        return None
    for layers in (selection.layers, tuple(analysis.layers)):
        found = LAYER_CHANCE.find(store, chance_key(analysis, replace(selection, layers=layers)))
        if found is not None:
            return found.of_layers([layers.index(layer) for layer in selection.layers])
    return None


def chance_key(analysis: Analysis, selection: Selection) -> dict[str, Any]:
    """Key of contributions by chance: no metric is fitted."""
    return analysis.key(replace(selection, estimator="", interactions=False))
