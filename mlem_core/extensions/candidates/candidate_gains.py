"""Candidates that a model gives, and what features explain more with a candidate among them.

A model gives its tokens and predictions, and the distances in its other layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import student_quantile
from mlem_core.base.parallel import map_on_all_cores
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.inference.block_influence import BlockSums, jackknife_rsa
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import PermutationNull, permutation_null
from mlem_core.inference.permuted_contributions import PermutedContributions
from mlem_core.inference.resample import jackknife
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.moment_sums import layer_moments
from mlem_core.pairs.moments import PairMoments, pair_moments
from mlem_core.pairs.resampling_units import Blocks
from mlem_core.stimuli.candidates import CANDIDATES, SURPRISAL, Candidate, added_column
from mlem_core.stimuli.columns import guess_kind, texts, typed_column
from mlem_core.stimuli.levels import exchanges, stimulus_exchange
from mlem_core.stimuli.stimulus_set import (
    ITEM,
    ORDER,
    PRESENTED,
    SPLIT,
    UNIT,
    Feature,
    Rdm,
    StimulusSet,
)
from mlem_core.storage.store import Store

LeftOut = list[tuple[str, str]]


def model_candidates(
    analysis: Analysis, stimuli: StimulusSet, pairs: LayerPairs, store: Store
) -> tuple[list[Candidate], LeftOut]:
    """Candidates of the models of an analysis for what explains some layers, and what is not there.

    Sub-tokens in the models of the layers; surprisal, entropy and most likely next token in the
    first causal model of the analysis, those of the layers before others; the distances in layer 0
    of the models of the layers, and in the layer of each other model that is as deep.

    Parameters
    ----------
    stimuli : those of the pairs
    """
    own, files = [*dict.fromkeys(model for model, _ in pairs.layers)], analysis.spec.representations
    models = dict.fromkeys([*own, *(model for model, _ in analysis.layers)])
    left_out: LeftOut = []
    found = _layer_candidates(analysis, pairs, store, left_out)
    of_text = [name for name in models if name not in dict(files)]
    if stimuli.level == "word":
        found += _text_candidates(stimuli, of_text, own, analysis.spec.device, left_out)
    return found, left_out


def _text_candidates(
    stimuli: StimulusSet, models: Sequence[str], own: Sequence[str], device: str, left_out: LeftOut
) -> list[Candidate]:
    """Sub-tokens in some models, and predictions of the first that is causal."""
    from mlem_core.representations.loading import load_with_head, open_model
    from mlem_core.representations.predictions import tokenized, word_predictions

    found: list[Candidate] = []
    causal = ""
    for name in models:
        if causal and name not in own:
            break
        try:
            loaded = open_model(name, device)
            tokens = tokenized(stimuli, loaded)
            if name in own:
                counts = np.diff(tokens.spans, axis=1)[:, 0] + 1
                found.append(_given(f"sub_tokens_{name}", f"sub-tokens in {name}", counts))
            if loaded.causal and not causal:
                causal = name
                of = word_predictions(tokens, loaded, load_with_head(loaded))
                likely = loaded.tokenizer.convert_ids_to_tokens(of.likeliest.tolist())
                column, label = f"{SURPRISAL}:{name}", f"the most likely next token in {name}"
                entropy = f"the entropy of what follows in {name}"
                found += [
                    _given(added_column(column), f"the surprisal in {name}", of.surprisal),
                    _given(f"entropy_{name}", entropy, of.entropy),
                    Candidate(f"next_token_{name}", label, lambda _, likely=likely: likely),  # type: ignore[misc]
                ]
        except InputError as error:
            left_out.append((f"tokens and predictions of {name}", str(error).rstrip(".")))
    return found


def _given(name: str, label: str, numbers: FloatArray) -> Candidate:
    return Candidate(name, label, lambda _: numbers, "ordered")


def _layer_candidates(
    analysis: Analysis, pairs: LayerPairs, store: Store, left_out: LeftOut
) -> list[Candidate]:
    """Distances in the embeddings of the models of some layers, and in layers of others as deep."""
    of_model: dict[str, list[int]] = {}
    for model, number in analysis.layers:
        of_model.setdefault(model, []).append(number)
    deepest = {model: max(*numbers, 1) for model, numbers in of_model.items()}
    depth = float(np.mean([number / deepest[model] for model, number in pairs.layers]))
    own, files = {model for model, _ in pairs.layers}, dict(analysis.spec.representations)
    asked: list[Layer] = [(model, 0) for model in sorted(own - {*files}) if 0 in of_model[model]]
    for model, numbers in of_model.items():
        if model not in own:
            nearest = min(numbers, key=lambda n: abs(n / deepest[model] - depth))
            asked.append((model, nearest))
    found = []
    for layer in asked:
        if layer not in pairs.layers:
            try:
                selection = analysis.select(layers=[layer])
                found.append(_distances(LayerPairs.from_analysis(analysis, selection, store)))
            except InputError as error:
                left_out.append((layer_name(layer), str(error).rstrip(".")))
    return found


def _distances(pairs: LayerPairs) -> Candidate:
    """Distances in one layer; stimuli at distance 0 are one value."""
    from scipy.spatial.distance import squareform

    name, square = layer_name(pairs.layers[0]), squareform(np.sqrt(pairs.squared[0]))
    values, of = np.unique(np.argmax(square <= 0, axis=1), return_inverse=True)
    cells = [f"stimulus {row + 1}" for row in values]
    rdm = Rdm(tuple(cells), square[np.ix_(values, values)])
    own = [cells[number] for number in of.reshape(-1)]
    return Candidate(name, f"the distances in {name}", lambda _: own, "rdm", rdm=rdm)


# Columns that others stand for: the sentence, and the word in it; and those that say when a
# stimulus came (as `sample` of events.tsv does), which go with whatever drifts.
_PLACES = frozenset(
    {"sentence", "word_index", "word", "sentence_id", *PRESENTED, ORDER, SPLIT, "_sample"}
)


def stimulus_candidates(stimuli: StimulusSet) -> list[Candidate]:
    """Candidates of a stimulus set: entries of `CANDIDATES`, then columns of its table.

    A column of the table takes the place of an entry of its name.
    """
    features = {feature.name for feature in stimuli.features}
    there = [str(name) for name in stimuli.table if str(name) not in _PLACES | features]
    made = [
        entry
        for name, entry in CANDIDATES.items()
        if name not in {*there, *features}
        and not entry.needs_model
        and (stimuli.level == "word" if entry.words_only else stimuli.level != "stimulus")
    ]
    return made + [
        Candidate(
            name,
            f"the column {name}",
            partial(_column, name),
            None,
            is_identity=name == ITEM or name.startswith(UNIT),
        )
        for name in there
        if name not in stimuli.rdms
    ]


def _column(name: str, stimuli: StimulusSet) -> Any:
    return stimuli.table[name]


# A candidate whose columns vary by less than this part beyond those of the features follows from
# them.
FOLLOWS = 1e-9


class BaselineFit(NamedTuple):
    """What features explain before a candidate is added to them.

    Attributes
    ----------
    pairs : all pairs of the stimuli in two layers, or in one
    blocks : of stimuli that are left out in turn
    explained : what the features explain of the RSA correlation of the first and the last layer
    without : (n_blocks,) the same without each block
    """

    pairs: LayerPairs
    blocks: Blocks
    explained: float
    without: FloatArray

    @classmethod
    def from_pairs(cls, pairs: LayerPairs, blocks: Blocks) -> BaselineFit:
        """What the features of pairs explain."""
        explained, without = explained_with_jackknife(pairs, blocks)
        return cls(pairs, blocks, explained, without)

    def gain(self, fit: AugmentedFit, *chances: FloatArray) -> tuple[float, float, float]:
        """What the features explain more with a candidate, and its 95 % interval beyond chance.

        Parameters
        ----------
        chances : gains (n_permutations,) of permuted labels, of each candidate that was added
        """
        explained, without = explained_with_jackknife(fit.pairs, self.blocks)
        gain = explained - self.explained
        ends = jackknife(np.array(gain), without - self.without, self.blocks.sizes)
        errors = [
            student_quantile(len(draws) - 1) * draws.std(ddof=1) / np.sqrt(len(draws))
            for draws in chances
        ]
        more = np.hypot.reduce(errors)
        low, high = (float(np.hypot(end - gain, more)) for end in (ends.lower, ends.upper))
        middle = gain - float(sum(draws.mean() for draws in chances))
        return gain, middle - low, middle + high


class AugmentedFit(NamedTuple):
    """Pairs with a candidate beside their features, as their last one.

    Attributes
    ----------
    stimuli : with the candidate as their only feature
    pairs : with its columns
    is_identity : whether it says which word or sentence a stimulus is
    """

    stimuli: StimulusSet
    pairs: LayerPairs
    is_identity: bool = False

    @classmethod
    def from_pairs(
        cls, pairs: LayerPairs, stimuli: StimulusSet, candidate: Candidate, missing: str
    ) -> AugmentedFit:
        """Pairs with a candidate; a category is coded by value where it has few enough of them.

        Raises InputError: it cannot be computed; it distinguishes no pairs, or nearly all of them;
        it follows from the features; too many columns.
        """
        cells, name = texts(pd.Series(candidate.values(stimuli))), candidate.name
        kind = candidate.kind or guess_kind(cells)
        table = stimuli.table.assign(**{name: typed_column(name, cells, kind).to_numpy()})
        rdms = {} if candidate.rdm is None else {name: candidate.rdm}
        features = (Feature(name, kind),)
        with_candidate = replace(stimuli, table=table, features=features, rdms=rdms)
        column = feature_columns(with_candidate)[0]
        if len(column.present) + (missing == "level" and pd.isna(column.values).any()) < 2:
            raise InputError("it has the same value for all stimuli")
        if column.kind == "nominal" and len(column.present) == len(stimuli):
            raise InputError("no two stimuli have the same value")
        interactions = pairs.statistics.interactions
        if column.has_few_values and column.kind == "nominal" and not interactions:
            column = column.with_names()
        augmented = _with_column(pairs, column, missing)
        if _follows(augmented.statistics.moments):
            raise InputError("it follows from the features")
        return cls(with_candidate, augmented, candidate.is_identity)

    def permute_labels(self, n_permutations: int) -> PermutationNull:
        """Gains of the candidate when its labels are permuted: draws are (1 + n_permutations,).

        Permutations are the same for all candidates of a unit.

        Raises InputError: too few stimuli take the labels of others.
        """
        moments, folds = self.pairs.statistics.moments, self.pairs.folds
        name = moments.columns.features[-1]
        values, rng = self.stimuli.values(name), np.random.default_rng(0)
        ways = exchanges(self.stimuli, folds, name)
        if self.is_identity:
            ways = (stimulus_exchange(folds),)
        permuted = PermutedContributions.from_moments(moments, self.pairs.ranks, beyond_all=True)
        last = [len(moments.columns.features) - 1]

        def gains(givers: IntArray) -> FloatArray:
            return np.asarray(permuted.feature_contributions(last, givers)[:, 0, -1])

        null = permutation_null(ways, values, gains, n_permutations, rng, gains)
        if null.unknown:
            raise InputError(f"permuted, it is not known what it gains ({null.unknown})")
        return null


def _with_column(pairs: LayerPairs, column: FeatureColumn, missing: str) -> LayerPairs:
    """Pairs with one more feature. Nothing is scored, so that test pairs stay as they were."""
    statistics, moments = pairs.statistics, pairs.statistics.moments
    columns = moments.columns.with_feature(column, missing)
    both = list(zip(pairs.squared, pairs.ranks, strict=True))
    of_layers = map_on_all_cores(lambda pair: layer_moments(columns, pairs.folds, *pair), both)
    augmented = pair_moments(
        columns, pairs.folds, of_layers, moments.rank_products, moments.untested
    )
    return replace(pairs, statistics=replace(statistics, moments=augmented))


def _follows(moments: PairMoments) -> bool:
    """Whether the columns of the last feature follow from those of the others."""
    columns = moments.columns
    gram = moments.within(np.ones(moments.n_blocks, dtype=bool)).gram
    last = columns.first_feature == len(columns.features) - 1
    last |= columns.second_feature == len(columns.features) - 1
    solution = np.linalg.lstsq(gram[np.ix_(~last, ~last)], gram[np.ix_(~last, last)], rcond=1e-10)
    rest = np.trace(gram[np.ix_(last, last)] - gram[np.ix_(last, ~last)] @ solution[0])
    return bool(rest <= FOLLOWS * np.trace(gram[np.ix_(last, last)]))


def explained_with_jackknife(pairs: LayerPairs, blocks: Blocks) -> tuple[float, FloatArray]:
    """What all features explain of the RSA of the first and the last layer; without each block.

    Returns a number and (n_blocks,), see `mlem_core.inference.block_influence`.
    """
    statistics, moments = pairs.statistics, pairs.statistics.moments
    together = replace(moments, columns=moments.columns.as_one_feature())
    pairs = replace(pairs, statistics=replace(statistics, moments=together))
    compared = jackknife_rsa(pairs.statistics, BlockSums.from_pairs(pairs, blocks=blocks))
    return float(compared.terms[0, 0, -1]), compared.terms_without[:, 0, 0, -1]
