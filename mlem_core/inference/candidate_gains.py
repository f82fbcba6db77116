"""Candidates that a model gives, and what features explain more with a candidate among them.

A model gives its tokens and predictions, and the distances in its other layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.source import SURPRISAL, added_column
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import student_quantile
from mlem_core.base.text import percent
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.data.added import Candidate, as_feature
from mlem_core.data.levels import MOVED, STIMULUS, exchange_of, exchanges
from mlem_core.data.stimuli import Rdm, StimulusSet
from mlem_core.inference.chance import largest_chance
from mlem_core.inference.layer_pairs import LayerPairs, Relabelled, square_of
from mlem_core.inference.resample import in_parts, jackknife
from mlem_core.pairs.columns import FeatureColumn, codes_of, feature_columns
from mlem_core.pairs.crossfit import CrossFit, explained_alone, places, share_alone
from mlem_core.pairs.resampling_units import Blocks, RankedPairs, Weights
from mlem_core.pairs.tables import PairTables
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
    found = _of_layers(analysis, pairs, store, left_out)
    of_text = [name for name in models if name not in dict(files)]
    if stimuli.level == "word":
        found += _of_text(stimuli, of_text, own, analysis.spec.device, left_out)
    return found, left_out


def _of_text(
    stimuli: StimulusSet, models: Sequence[str], own: Sequence[str], device: str, left_out: LeftOut
) -> list[Candidate]:
    """Sub-tokens in some models, and predictions of the first that is causal."""
    from mlem_core.models.loading import load_with_head, open_model
    from mlem_core.models.predictions import tokenized, word_predictions

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


def _of_layers(
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
                found.append(_distances(LayerPairs.of_sample(analysis, [layer], store)))
            except InputError as error:
                left_out.append((layer_name(layer), str(error).rstrip(".")))
    return found


def _distances(pairs: LayerPairs) -> Candidate:
    """Distances in one layer; stimuli at distance 0 are one value."""
    name, square = layer_name(pairs.layers[0]), square_of(pairs, np.sqrt(pairs.squared[0]), 0.0)
    values, of = np.unique(np.argmax(square <= 0, axis=1), return_inverse=True)
    cells = [f"stimulus {row + 1}" for row in values]
    rdm = Rdm(tuple(cells), square[np.ix_(values, values)])
    own = [cells[number] for number in of.reshape(-1)]
    return Candidate(name, f"the distances in {name}", lambda _: own, "rdm", rdm=rdm)


# Distances of a numeric candidate are put into so many bins.
BINS = 16
# Coded by value where so few pairs have a pattern that no pair of other stimuli has; left out where
# so many have.
FEW_ALONE, MOST_ALONE = 0.1, 0.5


class Base(NamedTuple):
    """What features explain before a candidate is added to them.

    of_each : (n_layers, n_features) what each of them alone explains
    without : (n_blocks,) what they explain without each block of stimuli
    """

    blocks: Blocks
    explained: float
    of_each: FloatArray
    without: FloatArray

    @classmethod
    def of(cls, pairs: LayerPairs, blocks: Blocks) -> Base:
        """What the features of pairs explain."""
        fit, explained, without = explained_and_left(pairs.whole, pairs.tables, blocks.weights)
        of_each = explained_alone(fit, range(fit.codes.shape[1]))
        return cls(blocks, explained, of_each, without)

    def gain(self, beside: Beside, *chances: FloatArray) -> tuple[float, float, float]:
        """What the features explain more with a candidate, and its 95 % interval beyond chance.

        Parameters
        ----------
        chances : gains (n_permutations,) of permuted labels, of each candidate that was added
        """
        weights = self.blocks.weights
        _, explained, without = explained_and_left(beside.ranked, beside.tables, weights)
        gain = explained - self.explained
        ends = jackknife(np.array(gain), without - self.without, self.blocks.sizes)
        errors = [
            student_quantile(len(one) - 1) * one.std(ddof=1) / np.sqrt(len(one)) for one in chances
        ]
        more = np.hypot.reduce(errors)
        low, high = (float(np.hypot(end - gain, more)) for end in (ends.lower, ends.upper))
        middle = gain - float(sum(one.mean() for one in chances))
        return gain, middle - low, middle + high


class Beside(NamedTuple):
    """Pairs with a candidate beside their features, as their last one.

    stimuli : with the candidate as their only feature
    relabelled : the pairs, and the tables that they have when stimuli take other values of it
    ranked, tables : the pairs by the cells of their tables
    is_identity : whether it says which word or sentence a stimulus is
    """

    stimuli: StimulusSet
    relabelled: Relabelled
    ranked: RankedPairs
    tables: PairTables
    is_identity: bool = False

    @property
    def pairs(self) -> LayerPairs:
        """The pairs, with the candidate as their last feature."""
        return replace(self.relabelled.pairs, tables=self.tables, cells=self.ranked.cells)

    @classmethod
    def of(
        cls, pairs: LayerPairs, stimuli: StimulusSet, candidate: Candidate, missing: str
    ) -> Beside:
        """Pairs with a candidate, coded by value where pairs suffice.

        Raises InputError: it distinguishes no pairs, or nearly all of them; chance is not known.
        """
        own = as_feature(stimuli, candidate)
        column = feature_columns(own)[0]
        if len(column.present) + (missing == "level" and pd.isna(column.values).any()) < 2:
            raise InputError("it has the same value for all stimuli")
        if column.kind == "nominal" and len(column.present) == len(stimuli):
            raise InputError("no two stimuli have the same value")
        if column.resolvable and column.kind == "nominal":
            found = cls._coded(pairs, own, column.with_names(), missing)
            if share_alone(found.tables) < FEW_ALONE:
                return found._replace(is_identity=candidate.is_identity)
        found = cls._coded(pairs, own, column, missing)
        if len(found.tables.codes) == len(pairs.tables.codes):
            raise InputError("it follows from the features")
        if (alone := share_alone(found.tables)) > MOST_ALONE:
            raise InputError(f"{percent(alone)} of the pairs have a pattern of their own with it")
        return found._replace(is_identity=candidate.is_identity)

    @classmethod
    def _coded(
        cls, pairs: LayerPairs, own: StimulusSet, column: FeatureColumn, missing: str
    ) -> Beside:
        coded, tables = codes_of(column, missing, BINS), pairs.tables
        # As if it were the same for all pairs, until stimuli take its values.
        with_it = replace(
            tables,
            features=(*tables.features, column.name),
            codes=np.column_stack((tables.codes, np.zeros(len(tables.codes), dtype=np.int64))),
        )
        f, everyone = len(tables.features), np.arange(len(own))
        more = replace(pairs, tables=with_it, coded=(*pairs.coded, coded))
        relabelled = Relabelled.of(more, f)
        return cls(own, relabelled, *relabelled.ranked(everyone))

    def by_chance(self, base: Base, n_permutations: int) -> tuple[str, FloatArray]:
        """Level of the labels, and gains (n_permutations,) when they are permuted.

        Permutations are the same for all candidates of a level.

        Raises InputError: too few stimuli take the labels of others.
        """
        name, folds = self.tables.features[-1], self.relabelled.pairs.folds
        values, rng = self.stimuli.values(name), np.random.default_rng(0)
        ways = exchanges(self.stimuli, folds, name)
        if self.is_identity:
            ways = (exchange_of(self.stimuli, folds, STIMULUS),)
        level, moved, draws = largest_chance(
            ways, values, (n_permutations,), rng, partial(self.permuted, base.of_each)
        )
        if moved < MOVED:
            raise InputError(
                f"permuted, it is nearly the same ({percent(moved)} of the stimuli change)"
            )
        return level, draws - base.explained

    def permuted(self, of_each: FloatArray, givers: IntArray) -> FloatArray:
        """v (n,) when stimuli take the value of the candidate from givers (n, n_stimuli)."""
        f, squares = of_each.shape[1], self.tables.rank_squares[None]
        ranks = np.stack(self.relabelled.pairs.ranks)
        none = np.zeros((len(of_each), f + 1), dtype=np.int64)

        def one(rows: IntArray) -> FloatArray:
            keys, sums = self.relabelled.sums(rows[0], ranks)
            cells = self.relabelled.tables(keys)
            fit = CrossFit.of_draws(cells, sums[:1], sums[None, 1:], squares, none)
            # What the features alone explain is the same for all labels.
            order = places(np.column_stack((of_each, explained_alone(fit, [f]))))
            return explained_of(replace(fit, priority=order))

        return in_parts(one, givers)


def explained_of(fit: CrossFit) -> FloatArray:
    """(n_draws,) v of all features, of two layers, or of one."""
    return fit.explained(fit.whole)[:, 0, -1]


def explained_and_left(
    pairs: RankedPairs, tables: PairTables, weights: Weights
) -> tuple[CrossFit, float, FloatArray]:
    """Cross-fit of two layers, v of all features, and v (n_blocks,) without each block."""
    fit = CrossFit.of(tables)
    left = [
        explained_of(CrossFit.of_draws(tables, sums.counts, sums.sums, sums.squares, fit.priority))
        for sums in pairs.by_stimulus.draw(weights)
    ]
    return fit, float(explained_of(fit)[0]), np.concatenate(left)
