"""Claims about layers, and in how many universes of a multiverse each holds.

With FI_f(A) the importance of feature f in layer A (mean over folds) and S(A, B) the similarity of
two layers (RSA, another similarity, or τ), a claim holds in a universe where its margin is above 0:

    top f A             FI_f(A) - max over g ≠ f of FI_g(A)    f matters most in A
    above f g A         FI_f(A) - FI_g(A)                      f matters more than g in A
    more-in f A B       FI_f(A) - FI_f(B)                      f matters more in A than in B
    closer A B C S      S(A, B) - S(A, C)                      A is more like B than like C
    alike A B S t       S(A, B) - t                            A and B are similar, S above t
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.labels import NAMES, SEPARATOR, Names
from mlem_core.base.text import fraction, minus
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.importance_chance import above_chance, chance_in_words
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.resample import jackknife
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.robustness.flags import short_of
from mlem_core.robustness.multiverse import Multiverse


class ClaimKind(NamedTuple):
    """Number of layers (a, b, c) and features (f, g) of a claim, whether it is about a similarity
    and a threshold, and its sentence."""

    layers: int
    features: int
    similar: bool
    limited: bool
    sentence: str


CLAIMS = {
    "top": ClaimKind(1, 1, False, False, "{f} matters most in {a}"),
    "above": ClaimKind(1, 2, False, False, "{f} matters more than {g} in {a}"),
    "more-in": ClaimKind(2, 1, False, False, "{f} matters more in {a} than in {b}"),
    "closer": ClaimKind(3, 0, True, False, "{a} is more like {b} than like {c} by {measure}"),
    "alike": ClaimKind(2, 0, True, True, "{measure} of {a} and {b} is above {threshold:g}"),
}


def measures() -> dict[str, str]:
    """Measures that a claim may compare two layers by, with their short names."""
    return {name: short_of(name) for name in (RSA, "tau", *SIMILARITIES)}


@dataclass(frozen=True)
class Claim:
    """A statement about layers, see this module.

    Attributes
    ----------
    kind : one of `CLAIMS`
    layers, features : as many as the kind needs, in the order above
    measure : "tau" or a similarity, of the kinds "closer" and "alike"
    threshold : of the kind "alike"
    """

    kind: str
    layers: tuple[Layer, ...]
    features: tuple[str, ...] = ()
    measure: str = RSA
    threshold: float = 0.5

    def __post_init__(self) -> None:
        check_choice("kind of claim", self.kind, CLAIMS)
        check_choice("measure of a claim", self.measure, measures())
        n_layers, n_features, *_ = CLAIMS[self.kind]
        if (len(self.layers), len(self.features)) != (n_layers, n_features):
            raise InputError(
                f"the claim {self.kind!r} names {n_layers} layers (model:layer) and {n_features} "
                f"features; found {len(self.layers)} and {len(self.features)}."
            )
        if len(set(self.layers)) < n_layers or len(set(self.features)) < n_features:
            raise InputError(f"the claim {self.kind!r} names a layer or a feature twice.")

    @classmethod
    def parse(cls, text: str) -> Claim:
        """Read a claim such as "top tense minilm:3" or "closer minilm:3 gpt2:5 gpt2:9 rsa".

        Raises InputError: an unknown kind of claim, or not what it needs.
        """
        try:
            kind, *words = shlex.split(text)
        except ValueError:
            raise InputError(
                f"{text!r} is no claim; one begins with {', '.join(CLAIMS)}, such as "
                "'top tense minilm:3'."
            ) from None
        check_choice("kind of claim", kind, CLAIMS)
        layers: list[Layer] = []
        features: list[str] = []
        more: dict[str, str | float] = {}
        for word in words:
            with contextlib.suppress(InputError):
                layers.append(parse_layer(word))
                continue
            if CLAIMS[kind].similar and word in measures():
                more["measure"] = word
            elif CLAIMS[kind].limited and _is_number(word):
                more["threshold"] = float(word)
            else:
                features.append(word)
        return cls(kind, tuple(layers), tuple(features), **more)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """The claim as `parse` reads it."""
        words = [self.kind, *self.features, *map(layer_name, self.layers)]
        words += [self.measure] if CLAIMS[self.kind].similar else []
        words += [f"{self.threshold:g}"] if CLAIMS[self.kind].limited else []
        return shlex.join(words)

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return self.named(NAMES)

    def named(self, names: Names) -> str:
        """The claim in words, its features and layers called by these names."""
        layers = [*map(names.layer_title, self.layers)]
        features = [*map(names.feature, self.features)]
        called = dict(zip("abc", layers, strict=False)) | dict(zip("fg", features, strict=False))
        more: dict[str, object] = {"measure": short_of(self.measure), "threshold": self.threshold}
        return CLAIMS[self.kind].sentence.format(**called, **more)

    @property
    def similarities(self) -> tuple[str, ...]:
        """The similarities that a multiverse has to have, RSA among them."""
        return tuple(dict.fromkeys((RSA, *({self.measure} & {*SIMILARITIES}))))

    def margins(self, multiverse: Multiverse) -> pd.Series:
        """The margin in each universe, by its number; the claim holds where it is above 0.

        Raises InputError: a layer, feature or similarity that the multiverse does not have.
        """
        importance = multiverse.importance
        ends = zip(importance["model"], importance["layer"], strict=True)
        there = dict.fromkeys(map(layer_name, ends))
        for layer in self.layers:
            check_choice("layer of the multiverse", layer_name(layer), there)
        check_choice("measure of the multiverse", self.measure, multiverse.measures)
        pairs = multiverse.similarity.set_index("universe")

        def profile(layer: Layer) -> pd.DataFrame:
            chosen = (importance["model"] == layer[0]) & (importance["layer"] == layer[1])
            table = importance[chosen]
            wide = table.pivot(index="universe", columns="feature", values="importance")
            return wide[list(dict.fromkeys(table["feature"]))]

        def similarity(a: Layer, b: Layer) -> pd.Series:
            ends = pairs[["model_a", "layer_a", "model_b", "layer_b"]].itertuples(index=False)
            chosen = np.array([{(m, i), (n, j)} == {a, b} for m, i, n, j in ends], dtype=bool)
            values: pd.Series = pairs.loc[chosen, self.measure]
            return values

        return self.margin(profile, similarity)

    def margin(
        self,
        profile: Callable[[Layer], pd.DataFrame],
        similarity: Callable[[Layer, Layer], pd.Series],
    ) -> pd.Series:
        """The margin in each row, from importances (a column a feature) and similarities."""
        a, *others = self.layers
        if self.kind == "closer":
            return similarity(a, others[0]) - similarity(a, others[1])
        if self.kind == "alike":
            return similarity(a, others[0]) - self.threshold
        first = profile(a)
        for name in self.features:
            check_choice("feature", name, first)
        name = self.features[0]
        if self.kind == "top":
            return first[name] - first.drop(columns=name).max(axis=1)
        if self.kind == "above":
            return first[name] - first[self.features[1]]
        return first[name] - profile(others[0])[name]


class OverStimuli(NamedTuple):
    """The margin of a claim in the main analysis, with its confidence interval over stimuli.

    others : what the interval is over, see `mlem_core.pairs.resampling_units.Units.others`
    p : of the hypothesis that the margin is 0 (two-sided)
    """

    value: float
    lower: float
    upper: float
    p: float
    others: str

    @property
    def sentence(self) -> str:
        """Margin in the main analysis with its interval and test, in words."""
        p = "p < .001" if self.p < 0.001 else f"p = {fraction(self.p, 3)}"
        text = (
            f"In the main analysis the margin is {self.value:.3f} (95 % CI over {self.others}: "
            f"{self.lower:.3f} to {self.upper:.3f}, {p})."
        )
        return minus(text)


def over_stimuli(claim: Claim, intervals: LayerIntervals) -> OverStimuli | None:
    """The margin of a claim with its interval over the stimuli.

    None for a claim about τ, or about another similarity than that of the intervals.

    Raises InputError: a layer or feature that the intervals do not have.
    """
    if CLAIMS[claim.kind].similar and claim.measure != intervals.similarity:
        return None
    place = dict(zip(claim.layers, intervals.places(claim.layers), strict=True))
    # The value comes first, then what is left without each block.
    scores = np.concatenate((intervals.scores[None], intervals.scores_without))[..., 2:]
    similarity = np.concatenate((intervals.values[None], intervals.values_without))
    margin = claim.margin(
        lambda layer: pd.DataFrame(scores[:, place[layer]], columns=list(intervals.columns)),
        lambda a, b: pd.Series(similarity[:, place[a], place[b]]),
    ).to_numpy()
    found = jackknife(margin[0], margin[1:], intervals.sizes)
    value, lower, upper, p = map(float, found[:4])
    return OverStimuli(value, lower, upper, p, intervals.units.others)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def of_chance(claim: Claim, chance: pd.DataFrame | None, names: Names = NAMES) -> str:
    """Comparison with chance of a claim's first feature in its first layer, in a sentence.

    Parameters
    ----------
    claim : on features
    chance : of `importances_by_chance`; None where that is not known
    """
    called = names.feature(claim.features[0]), names.layer_title(claim.layers[0])
    return chance_in_words(beyond(claim, chance), *called)


def beyond(claim: Claim, chance: pd.DataFrame | None) -> bool | None:
    """Whether that feature matters more than permuted labels; None: not known, or no feature."""
    return above_chance(chance, claim.layers[0], claim.features[0]) if claim.features else None


def curve(claim: Claim, multiverse: Multiverse, chance: pd.DataFrame | None = None) -> pd.DataFrame:
    """The universes in the order of the claim's margin: what a specification curve shows.

    Parameters
    ----------
    chance : of `importances_by_chance`; where permuted labels matter as much, it holds in none

    Returns
    -------
    The columns of `Multiverse.universes`, margin, holds, place (from 0)
    """
    table = multiverse.universes.copy()
    table["margin"] = claim.margins(multiverse).reindex(table["universe"]).to_numpy()
    table["holds"] = (table["margin"] > 0) & (beyond(claim, chance) is not False)
    table = table.sort_values("margin", kind="stable", ignore_index=True)
    return table.assign(place=np.arange(len(table)))


def by_choice(
    claim: Claim, multiverse: Multiverse, chance: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Number of universes with each choice in which the claim holds.

    Returns
    -------
    dimension, choice, holds, of, median (margin)
    """
    table = curve(claim, multiverse, chance).sort_values("universe")
    rows = [
        (name, choice, int(part["holds"].sum()), len(part), float(part["margin"].median()))
        for name in multiverse.dimensions
        for choice, part in table.groupby(name, sort=False)
    ]
    return pd.DataFrame(rows, columns=["dimension", "choice", "holds", "of", "median"])


def check_features(claim: Claim, stimuli: StimulusSet) -> None:
    """Raise InputError for a feature that the stimuli do not have, nor the parts of a product."""
    names = [feature.name for feature in stimuli.features]
    for name in claim.features:
        if name not in names and not {*name.split(SEPARATOR)} <= {*names}:
            raise unknown("feature", name, names)


def verdict(
    claim: Claim,
    multiverse: Multiverse,
    names: Names = NAMES,
    chance: pd.DataFrame | None = None,
) -> str:
    """Number of universes in which a claim holds, in a sentence, and the most decisive choice."""
    if beyond(claim, chance) is False:
        return f"{claim.named(names)}: does not hold. {of_chance(claim, chance, names)}"
    table = curve(claim, multiverse)
    holds, n = int(table["holds"].sum()), len(table)
    begin = f"{claim.named(names)}: holds in {holds} of {n}"
    if holds in (0, n) or not multiverse.dimensions:
        return f"{begin}."
    shares = by_choice(claim, multiverse)
    shares["share"] = shares["holds"] / shares["of"]
    apart = shares.groupby("dimension", sort=False)["share"].agg(np.ptp)
    name = apart.idxmax()
    rows = shares[shares["dimension"] == name].itertuples()
    listed = ", ".join(f"{row.holds} of {row.of} with {row.choice}" for row in rows)
    return f"{begin}; it depends most on {str(name).replace('_', ' ')} ({listed})."


def orders(multiverse: Multiverse, names: Names = NAMES) -> list[str]:
    """Orders that hold without any claim: of the features by importance, of layers by similarity.

    Returns
    -------
    A sentence a layer and a sentence a pair of layers
    """
    sentences, n = [], len(multiverse.universes)
    for (model, layer), part in multiverse.layers.groupby(["model", "layer"], sort=False):
        tops = part["top"].value_counts()
        listed = ", ".join(f"{names.feature(str(name))} in {count}" for name, count in tops.items())
        called = names.layer_title((str(model), int(layer)))
        sentences.append(f"What matters most in {called}, of {n} analysis variants: {listed}.")
    ends = ["model_a", "layer_a", "model_b", "layer_b"]
    for (m, i, other, j), part in multiverse.similarity.groupby(ends, sort=False):
        spans = [
            f"{short_of(name)} from {fraction(part[name].min())} to {fraction(part[name].max())}"
            for name in multiverse.measures
        ]
        a, b = map(names.layer_title, ((str(m), int(i)), (str(other), int(j))))
        sentences.append(f"{a} and {b}: {', '.join(spans)}.".replace("-", "−"))
    return sentences
