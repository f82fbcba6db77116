"""Claims about layers, and in how many universes of a multiverse each holds.

With FI_f(A) the importance of feature f in layer A (mean over folds) and S(A, B) the similarity of
two layers (RSA or τ), a claim holds in a universe where its margin is above 0:

    top f A             FI_f(A) - max over g ≠ f of FI_g(A)    f matters most in A
    above f g A         FI_f(A) - FI_g(A)                      f matters more than g in A
    more-in f A B       FI_f(A) - FI_f(B)                      f matters more in A than in B
    closer A B C S      S(A, B) - S(A, C)                      A is more like B than like C
    alike A B S t       S(A, B) - t                            A and B are alike, S above t
"""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.text import minus
from mlem_core.base.typing import Layer, layer_name, parse_layer

if TYPE_CHECKING:
    from mlem_core.inference.intervals import ErrorBars
    from mlem_core.robustness.multiverse import Multiverse

# How many layers and features a claim names, and whether it is about a similarity and a threshold.
CLAIMS = {
    "top": (1, 1, False, False),
    "above": (1, 2, False, False),
    "more-in": (2, 1, False, False),
    "closer": (3, 0, True, False),
    "alike": (2, 0, True, True),
}
MEASURES = {"rsa": "RSA", "tau": "τ"}


@dataclass(frozen=True)
class Claim:
    """Something that is said of layers, see this module.

    Attributes
    ----------
    kind : one of `CLAIMS`
    layers, features : as many as the kind needs, in the order above
    measure : "rsa" or "tau", of the kinds "closer" and "alike"
    threshold : of the kind "alike"
    """

    kind: str
    layers: tuple[Layer, ...]
    features: tuple[str, ...] = ()
    measure: str = "rsa"
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in CLAIMS:
            raise unknown("kind of claim", self.kind, CLAIMS)
        if self.measure not in MEASURES:
            raise unknown("measure of a claim", self.measure, MEASURES)
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

        Raises
        ------
        InputError
            An unknown kind of claim, or not what it needs.
        """
        try:
            kind, *words = shlex.split(text)
        except ValueError:
            raise InputError(
                f"{text!r} is no claim; one begins with {', '.join(CLAIMS)}, such as "
                "'top tense minilm:3'."
            ) from None
        if kind not in CLAIMS:
            raise unknown("kind of claim", kind, CLAIMS)
        *_, similar, limited = CLAIMS[kind]
        layers: list[Layer] = []
        features: list[str] = []
        more: dict[str, str | float] = {}
        for word in words:
            with contextlib.suppress(InputError):
                layers.append(parse_layer(word))
                continue
            if similar and word in MEASURES:
                more["measure"] = word
            elif limited and _is_number(word):
                more["threshold"] = float(word)
            else:
                features.append(word)
        return cls(kind, tuple(layers), tuple(features), **more)  # type: ignore[arg-type]

    @property
    def sentence(self) -> str:
        """The claim in words."""
        a, *others = [layer_name(layer) for layer in self.layers]
        if self.kind == "top":
            return f"{self.features[0]} matters most in {a}"
        if self.kind == "above":
            return f"{self.features[0]} matters more than {self.features[1]} in {a}"
        if self.kind == "more-in":
            return f"{self.features[0]} matters more in {a} than in {others[0]}"
        if self.kind == "closer":
            of = f"by {MEASURES[self.measure]}"
            return f"{a} is more like {others[0]} than like {others[1]} {of}"
        return f"{MEASURES[self.measure]} of {a} and {others[0]} is above {self.threshold:g}"

    def margins(self, found: Multiverse) -> pd.Series:
        """The margin in each universe, by its number; the claim holds where it is above 0.

        Raises
        ------
        InputError
            A layer or feature that the multiverse does not have.
        """
        if self.kind == "closer":
            return self._similarity(found, 0, 1) - self._similarity(found, 0, 2)
        if self.kind == "alike":
            return self._similarity(found, 0, 1) - self.threshold
        first = self._profile(found, self.layers[0])
        name = self.features[0]
        if self.kind == "top":
            return first[name] - first.drop(columns=name).max(axis=1)
        if self.kind == "above":
            return first[name] - first[self.features[1]]
        return first[name] - self._profile(found, self.layers[1])[name]

    def _profile(self, found: Multiverse, layer: Layer) -> pd.DataFrame:
        """Importances, a row a universe and a column a feature."""
        table = found.importance
        own = table[(table["model"] == layer[0]) & (table["layer"] == layer[1])]
        if own.empty:
            raise _no_layer(found, layer)
        profile = own.pivot(index="universe", columns="feature", values="importance")
        for name in self.features:
            if name not in profile:
                raise unknown("feature", name, dict.fromkeys(own["feature"]))
        return profile

    def _similarity(self, found: Multiverse, one: int, other: int) -> pd.Series:
        a, b = self.layers[one], self.layers[other]
        table = found.similarity.set_index("universe")
        first = list(zip(table["model_a"], table["layer_a"], strict=True))
        second = list(zip(table["model_b"], table["layer_b"], strict=True))
        chosen = np.array(
            [{x, y} == {a, b} for x, y in zip(first, second, strict=True)], dtype=bool
        )
        if not chosen.any():
            present = {*first, *second}
            raise _no_layer(found, b if a in present else a)
        values: pd.Series = table.loc[chosen, self.measure]
        return values


class OverStimuli(NamedTuple):
    """The margin of a claim in the analysis itself, with what other sentences would make of it.

    p : of the hypothesis that the margin is 0 (two-sided)
    """

    value: float
    lower: float
    upper: float
    p: float

    @property
    def sentence(self) -> str:
        """In words."""
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        text = (
            f"In the analysis as it is the margin is {self.value:.3f}; other sentences of this "
            f"kind would put it between {self.lower:.3f} and {self.upper:.3f} (95 % interval, {p})."
        )
        return minus(text)


def over_stimuli(claim: Claim, bars: ErrorBars) -> OverStimuli | None:
    """The margin of a claim with its interval over the sentences; None for a claim about τ.

    Raises
    ------
    InputError
        A layer or feature that the error bars do not have.
    """
    from mlem_core.inference.intervals import jackknife
    from mlem_core.inference.jackknife import p_value

    at = bars.places(claim.layers)
    for name in claim.features:
        if name not in bars.columns:
            raise unknown("feature", name, bars.columns)
    # The value comes first, then what is left without each block of sentences.
    scores = np.concatenate((bars.scores[None], bars.scores_without))[:, at, 2:]
    rsa = np.concatenate((bars.rsa[None], bars.rsa_without))[:, at][:, :, at]
    names = [bars.columns.index(name) for name in claim.features]
    if claim.kind in ("closer", "alike"):
        if claim.measure != "rsa":
            return None
        other = rsa[:, 0, 2] if claim.kind == "closer" else claim.threshold
        margin = rsa[:, 0, 1] - other
    elif claim.kind == "top":
        margin = scores[:, 0, names[0]] - np.delete(scores[:, 0], names[0], axis=1).max(axis=1)
    elif claim.kind == "above":
        margin = scores[:, 0, names[0]] - scores[:, 0, names[1]]
    else:
        margin = scores[:, 0, names[0]] - scores[:, 1, names[0]]
    value, without = margin[:1], margin[1:, None]
    bounds = jackknife(value, without)
    found = (value, bounds.lower, bounds.upper, p_value(value, without))
    return OverStimuli(*(float(own[0]) for own in found))


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _no_layer(found: Multiverse, layer: Layer) -> InputError:
    layers = zip(found.layers["model"], found.layers["layer"], strict=True)
    names = dict.fromkeys(layer_name(one) for one in layers)
    return unknown("layer of the multiverse", layer_name(layer), names)


def curve(claim: Claim, found: Multiverse) -> pd.DataFrame:
    """The universes in the order of the claim's margin: what a specification curve shows.

    Returns
    -------
    The columns of `Multiverse.universes`, margin, holds, place (from 0)
    """
    table = found.universes.copy()
    table["margin"] = claim.margins(found).reindex(table["universe"]).to_numpy()
    table["holds"] = table["margin"] > 0
    table = table.sort_values("margin", kind="stable", ignore_index=True)
    return table.assign(place=np.arange(len(table)))


def by_choice(claim: Claim, found: Multiverse) -> pd.DataFrame:
    """In how many of the universes with each choice the claim holds.

    Returns
    -------
    dimension, choice, holds, of, median (margin)
    """
    table = curve(claim, found).sort_values("universe")
    rows = [
        (name, choice, int(own["holds"].sum()), len(own), float(own["margin"].median()))
        for name in found.dimensions
        for choice, own in table.groupby(name, sort=False)
    ]
    return pd.DataFrame(rows, columns=["dimension", "choice", "holds", "of", "median"])


def verdict(claim: Claim, found: Multiverse) -> str:
    """In how many universes a claim holds, in a sentence, and which choice matters most for it."""
    table = curve(claim, found)
    holds, n = int(table["holds"].sum()), len(table)
    begin = f"{claim.sentence}: holds in {holds} of {n}"
    if holds in (0, n) or not found.dimensions:
        return f"{begin}."
    shares = by_choice(claim, found)
    shares["share"] = shares["holds"] / shares["of"]
    apart = shares.groupby("dimension", sort=False)["share"].agg(np.ptp)
    name = apart.idxmax()
    own = shares[shares["dimension"] == name]
    listed = ", ".join(f"{row.holds} of {row.of} with {row.choice}" for row in own.itertuples())
    return f"{begin}; it depends most on {str(name).replace('_', ' ')} ({listed})."


def orders(found: Multiverse) -> list[str]:
    """What holds without any claim: how often each feature comes first, and how alike layers are.

    Returns
    -------
    A sentence a layer and a sentence a pair of layers
    """
    said, n = [], len(found.universes)
    for (model, layer), own in found.layers.groupby(["model", "layer"], sort=False):
        tops = own["top"].value_counts()
        listed = ", ".join(f"{name} in {count}" for name, count in tops.items())
        said.append(f"What matters most in {model}:{layer}, of {n} universes: {listed}.")
    ends = ["model_a", "layer_a", "model_b", "layer_b"]
    for (m, i, other, j), own in found.similarity.groupby(ends, sort=False):
        low, high = own["rsa"].min(), own["rsa"].max()
        tau = f"τ from {own['tau'].min():.2f} to {own['tau'].max():.2f}"
        text = f"{m}:{i} and {other}:{j}: RSA from {low:.2f} to {high:.2f}, {tau}."
        said.append(minus(text))
    return said
