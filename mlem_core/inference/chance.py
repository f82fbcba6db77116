"""Chance at the level of a feature: what its contribution is when its labels are permuted.

A feature that is constant on words also says which word a stimulus is, and words recur in the
stimuli that a contribution is learnt from and in those that it is computed on. Cross-fitting
removes noise, but not this. So the labels of one feature are permuted among the units of its level
(`mlem_core.data.levels`), all others as they are; what it contributes then is chance, and its
contribution is the excess over that. What chance gives to all features of one level is called
*word identity* (*item*, *sentence identity*): any labels of these units would contribute it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.numbers import student_quantile
from mlem_core.base.text import listed, percent
from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.base.work import cores, in_order
from mlem_core.data.levels import MOVED, STIMULUS, Exchange, exchanges
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.intervals import PERMUTATIONS
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permuted_contributions import PermutedContributions
from mlem_core.inference.resample import Estimate
from mlem_core.measures.decomposition import Decomposition
from mlem_core.storage.store import Packed

UNCORRECTED = "Not corrected for chance: random labels may contribute as much."
# Permutations of a feature at once; progress is told after each of them.
AT_ONCE = 100


def corrected_p(draws: FloatArray, values: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """p of what features have, corrected over the features: (n_features, ...).

    The share of permutations in which the largest of all features is as far above its mean, in
    standard deviations.

    Parameters
    ----------
    draws : (n_permutations, n_features, ...) what they have when they are permuted
    values : (n_features, ...)
    known : (n_features,) whether chance is known; NaN where not

    Source: Westfall and Young (1993), the maximum statistic.
    """
    mean, spread = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    scale = np.where(spread > 1e-12, spread, np.inf)
    largest = ((draws - mean) / scale)[:, known].max(axis=1, initial=-np.inf)
    above = (largest[:, None] >= (values - mean) / scale - 1e-12).sum(axis=0)
    p = (1.0 + above) / (1.0 + len(draws))
    p[~known] = np.nan
    return p


class Chance(NamedTuple):
    """Contributions of each feature to the similarity of n_layers layers when it is permuted.

    features : (n_features,) names
    levels : (n_features,) "word", "item", "sentence" or "stimulus": whose labels are permuted
    moved : (n_features,) share of the stimuli that take the labels of others
    draws : (n_permutations, n_features, n_layers, n_layers)
    reach : (n_identities,) half-widths of the confidence intervals of identities, see
        `mlem_core.inference.block_influence.identity_reach`; None where they are not known
    """

    features: tuple[str, ...]
    levels: tuple[str, ...]
    moved: FloatArray
    draws: Annotated[FloatArray, Packed(np.float32)]
    reach: FloatArray | None = None

    def of_layers(self, places: Sequence[int]) -> Chance:
        """Contributions by chance to the similarity of some of the layers."""
        return self._replace(draws=self.draws[:, :, places][..., places])

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n_features,) whether enough stimuli take the labels of others."""
        return np.asarray(self.moved >= MOVED)

    @property
    def mean(self) -> FloatArray:
        """(n_features, n_layers, n_layers) the mean over permutations; 0 where it is not known."""
        shown = self.known[:, None, None]
        return np.where(shown, self.draws.mean(axis=0), 0.0)

    @property
    def error(self) -> FloatArray:
        """(n_features,) standard error of the mean in two layers, from so many permutations."""
        spread = self.draws[:, :, 0, -1].std(axis=0, ddof=1)
        found: FloatArray = np.where(self.known, spread / np.sqrt(len(self.draws)), 0.0)
        return found

    def p(self, contributions: FloatArray) -> FloatArray:
        """p of contributions (n_features, n_layers, n_layers), as `corrected_p` gives it."""
        return corrected_p(self.draws, contributions, self.known)

    @property
    def identities(self) -> tuple[str, ...]:
        """The terms that any labels have: "word identity", "sentence identity"."""
        found = dict.fromkeys(level for level in self.levels if level != STIMULUS)
        return tuple(f"{level} identity" for level in found)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on the features whose chance is not known; none where there are none."""
        rest = [
            f"{name} ({percent(share)} of the stimuli would take the label of another {level})"
            for name, level, share in zip(self.features, self.levels, self.moved, strict=True)
            if share < MOVED
        ]
        text = (
            f"Chance is not known for {listed(rest)}: it needs {percent(MOVED)}. Their "
            f"contributions may be {listed(self.identities or ('stimulus identity',), last='or')}."
        )
        return (text,) if rest else ()

    def apart(self, terms: FloatArray) -> FloatArray:
        """Contributions beyond chance, identities and "unexplained": (..., n_terms, n, n).

        Parameters
        ----------
        terms : (..., n_features + 1, n_layers, n_layers) contributions, and "unexplained", to which
            chance of labels of single stimuli is added
        """
        mean, levels = self.mean, np.array([f"{level} identity" for level in self.levels])
        of_units = np.isin(levels, self.identities)
        found = [mean[levels == name].sum(axis=0) for name in self.identities]
        middle = np.reshape(found, (len(found), *mean.shape[1:]))
        middle = np.broadcast_to(middle, (*terms.shape[:-3], *middle.shape))
        rest = terms[..., -1:, :, :] + mean[~of_units].sum(axis=0)
        return np.concatenate((terms[..., :-1, :, :] - mean, middle, rest), axis=-3)

    def of_all(self, split: Decomposition) -> Decomposition:
        """A similarity of layers as a sum of contributions beyond chance, and identities."""
        values, n = self.apart(split.values), len(self.features)
        nothing = np.full((len(self.identities), *values.shape[1:]), np.nan)
        shown = self.known[:, None, None]
        return replace(
            split,
            features=(*split.features, *self.identities),
            terms=values[:-1],
            unexplained=values[-1],
            error=None if split.error is None else np.concatenate((split.error, nothing)),
            chance=np.concatenate((np.where(shown, self.mean, np.nan), nothing)),
            p=np.concatenate((self.p(split.terms[:n]), nothing)),
        )

    def beyond(self, terms: pd.DataFrame) -> pd.DataFrame:
        """The contributions to two layers beyond chance; they still add up to the similarity.

        Parameters
        ----------
        terms : term, value and maybe error, of the features in their order and "unexplained"

        Returns
        -------
        term, value, chance, p: the features, less what chance gives; identities (of words,
        sentences) with what chance gives to all features of their level; "unexplained", to which
        chance of labels of single stimuli is added
        """
        value, rest = np.split(terms["value"].to_numpy(dtype=np.float64)[:, None, None], [-1])
        two = self._replace(draws=self.draws[:, :, :1, -1:])
        error = terms["error"].to_numpy()[:-1, None, None] if "error" in terms else None
        whole = value.sum(axis=0) + rest[0]
        return two.of_all(Decomposition(self.features, value, rest[0], whole, error)).pair(0, 0)

    def bounded(self, terms: pd.DataFrame, bounds: Estimate) -> pd.DataFrame:
        """Contributions beyond chance and identities with their intervals.

        Parameters
        ----------
        bounds : of the features and "unexplained", less chance, and of more
        """
        table, names = self.beyond(terms), np.array([f"{level} identity" for level in self.levels])
        value, n = table["value"].to_numpy(dtype=np.float64), len(self.features)
        own = np.append(value[:n], value[-1])
        # Chance is a mean over permutations, a sampled contribution one over orders: both errors
        # stand beside that of the stimuli.
        of_units = [np.hypot.reduce(self.error[names == name]) for name in self.identities]
        sampled = terms["error"].to_numpy()[:-1] if "error" in terms else 0.0
        own_error = np.hypot(self.error, sampled)
        more = student_quantile(len(self.draws) - 1) * np.array([*own_error, *of_units, 0.0])
        reach = np.full(len(of_units), np.nan) if self.reach is None else self.reach
        for sign, end in ((-1, "lower"), (1, "upper")):
            far = np.insert(sign * (getattr(bounds, end)[: n + 1] - own), n, reach)
            table[end] = value + sign * np.hypot(far, more)
        return table[["term", "value", "lower", "upper", "chance", "p"]]

    def shift(self) -> FloatArray:
        """(n_features + 1,) what is added to contributions, and to "unexplained", of two layers."""
        moved = self.apart(np.zeros((len(self.features) + 1, *self.draws.shape[2:])))[:, 0, -1]
        return np.append(moved[: len(self.features)], moved[-1])


def chance_at_level(
    pairs: LayerPairs,
    stimuli: StimulusSet,
    n_permutations: int = PERMUTATIONS,
    seed: int = 0,
    *,
    values: Sequence[FloatArray] | None = None,
    progress: Counted | None = None,
) -> Chance:
    """Contributions of each feature under labels that are permuted at its level.

    Parameters
    ----------
    pairs : all pairs of the stimuli, in n_layers layers
    stimuli : of the analysis
    values : for each layer (n_pairs,) what it gives every pair, centred, where that is not its rank
        (RSA); the statistics of the pairs then have it in the place of ranks, see
        `mlem_core.pairs.similarity_moments`
    progress : called with the number of permutations done and their total, of all features
    """
    rng = np.random.default_rng(seed)
    permuted = PermutedContributions.of(
        pairs.statistics.moments, pairs.ranks if values is None else values
    )
    some, features = pairs.stimuli_of(stimuli), pairs.statistics.features
    ways = [exchanges(some, pairs.folds, name) for name in features]
    n_layers, n_ways = pairs.statistics.moments.n_layers, sum(map(len, ways))
    shape, chance, done = (n_permutations, n_layers, n_layers), [], 0
    for feature, name in enumerate(features):
        before = count(done)

        def contributions(
            givers: IntArray, feature: int = feature, before: Iterator[int] = before
        ) -> FloatArray:
            way, drawn = next(before), list[FloatArray]()
            parts = [givers[start : start + AT_ONCE] for start in range(0, len(givers), AT_ONCE)]
            for part in in_order(partial(permuted.of_feature, feature), parts, cores()):
                drawn.append(part)
                if progress is not None:
                    n = way * n_permutations + min(len(drawn) * AT_ONCE, n_permutations)
                    progress(n, n_ways * n_permutations)
            return np.concatenate(drawn)

        chance.append(largest_chance(ways[feature], some.values(name), shape, rng, contributions))
        done += len(ways[feature])
    levels, moved, draws = zip(*chance, strict=True)
    return Chance(features, levels, np.array(moved), np.stack(draws, axis=1))


def beyond_chance(n_permutations: int) -> str:
    """Note that contributions are beyond chance, for a caption."""
    return (
        f"contributions beyond chance (labels permuted {n_permutations} times); p corrected over "
        "features"
    )


def largest_chance(
    ways: Sequence[Exchange],
    values: NDArray[Any],
    shape: tuple[int, ...],
    rng: np.random.Generator,
    permuted: Callable[[IntArray], FloatArray],
) -> tuple[str, float, FloatArray]:
    """Level, share that moves and draws of the exchange that gives a feature most.

    Parameters
    ----------
    ways : of `mlem_core.data.levels.exchanges`
    values : (n_stimuli,) of the feature; of a way that moves too few stimuli nothing is known,
        and draws are all 0
    shape : (n_permutations, ...) of the draws
    permuted : of whose value each stimulus takes (n_permutations, n_stimuli), what the feature has
    """
    found: list[tuple[float, str, float, FloatArray]] = []
    for way in ways:
        givers, moved = way.draw(shape[0], rng), way.moved(values)
        if moved < MOVED:
            found.append((np.inf, way.level, moved, np.zeros(shape)))
        else:
            drawn = permuted(givers)
            found.append((float(drawn.mean()), way.level, moved, drawn))
    return max(found, key=lambda one: one[0])[1:]
