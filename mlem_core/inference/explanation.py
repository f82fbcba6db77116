"""Why two layers are alike: the terms with their intervals, in words, and the pairs behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection, check_layers
from mlem_core.analysis.similarities import Compared
from mlem_core.base.brief import as_html
from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.parameters import names_in
from mlem_core.base.text import listed, number
from mlem_core.base.typing import Counted, Layer, layers_in
from mlem_core.inference import caveats, partial
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.replicates import Replicates, resampled_terms, resampled_transfers
from mlem_core.measures.decomposition import UNEXPLAINED, ceilings_of, decompose
from mlem_core.measures.partial import Explained
from mlem_core.measures.shapley import EXACT_FEATURES
from mlem_core.pairs.similarities import SIMILARITIES, Similarity
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.units import Units
from mlem_core.storage.store import Store

# Terms below this share of the largest are summed up in the sentence.
SMALL = 0.1
# Below this RSA correlation two layers are called hardly alike.
HARDLY = 0.1


@dataclass(frozen=True)
class Explanation:
    """Why two layers are alike.

    Attributes
    ----------
    layers : the two, (model, layer)
    terms : term (the features and "unexplained"), value; with `lower`, `upper` (95 % interval) and
        `chance` (what labels that are permuted give, see `chance_terms`) if stimuli were resampled,
        and `error` (of sampled orders) with more than 12 features. The values add up to the RSA
        correlation
    whole : quantity ("rsa", or the name of another similarity; "ceiling_a", "ceiling_b"), value,
        and lower, upper. The ceilings are cross-fitted and those of all pairs
    notes : sentences about how far this holds
    others : what intervals speak of, see `mlem_core.pairs.units.Units.others`
    coding : what of the features was looked at, see `mlem_core.pairs.columns.coding`
    names : what features, models and layers are called in words; the tables keep identifiers
    similarity : what the terms add up to
    partial : quantity, value, and lower, upper: S_feat, S_rest and, `with_transfer`, transfer, see
        `mlem_core.inference.partial`
    estimator, interactions : of the metrics that are transferred
    """

    layers: tuple[Layer, Layer]
    terms: pd.DataFrame
    whole: pd.DataFrame
    notes: tuple[str, ...] = ()
    others: str = "other sentences of this kind"
    coding: str = "whether they differ"
    names: Names = field(default_factory=Names)
    similarity: Similarity = SIMILARITIES["rsa"]
    partial: pd.DataFrame = field(default_factory=pd.DataFrame)
    estimator: str = ""
    interactions: bool = False

    def __repr__(self) -> str:
        return " ".join(part for part in (self.headline, self.how_sure) if part)

    def _repr_html_(self) -> str:
        return as_html(repr(self), (), self.terms)

    @property
    def value(self) -> float:
        """The similarity of the two layers."""
        return float(self.whole["value"].iloc[0])

    @property
    def features(self) -> pd.DataFrame:
        """The terms of the features."""
        return self.terms[self.terms["term"] != UNEXPLAINED]

    @property
    def unexplained(self) -> pd.Series:
        """The term that no feature explains."""
        return self.terms[self.terms["term"] == UNEXPLAINED].iloc[0]

    @property
    def called(self) -> tuple[str, str]:
        """What the two layers are called: "minilm layer 3", "brain V1"."""
        a, b = map(self.names.layer_title, self.layers)
        return a, b

    @property
    def sure(self) -> pd.DataFrame | None:
        """The features whose term is more than chance, the largest first; None: not known yet.

        A term above what permuted labels give where that is known, else one whose interval is
        above 0.
        """
        own = self.features
        if "chance" in own:
            own = own[own["value"] > own["chance"]]
        elif "lower" in own:
            own = own[own["lower"] > 0]
        else:
            return None
        return own.sort_values("value", ascending=False, kind="stable")

    @cached_property
    def headline(self) -> str:
        """What the two layers have most in common, in one or two short sentences.

        They count as hardly alike where their similarity is below `HARDLY`, or its interval
        goes below 0. Only a feature whose term is more than chance is named.
        """
        a, b = self.called
        value, whole = self.value, self.whole.iloc[0]
        how_much = f"({self.similarity.short} {number(value)})"
        if value < HARDLY or ("lower" in self.whole and whole["lower"] <= 0):
            return f"{a} and {b} are hardly alike {how_much}."
        text = f"{a} and {b} are alike {how_much}{_most_of_all(self)}"
        rest = float(self.unexplained["value"]) / value
        if rest < 0:
            return f"{text} What these features do not explain sets the two apart."
        # How the other features are coded, the sentence says.
        coded = self.coding.partition(" (")[0]
        plain = coded.replace("they", "these features")
        features = f"by {plain}." if plain != coded else f"by these features and {coded}."
        if rest > 1:
            return f"{text} None of it is explained {features}"
        return f"{text} {_share(rest)} of it is not explained {features}"

    @cached_property
    def how_sure(self) -> str:
        """What other stimuli would change, in a sentence; empty without intervals."""
        if "lower" not in self.whole:
            return ""
        parts = [(f"their {self.similarity.short}", self.whole.iloc[0])]
        if self.sure is not None and len(self.sure):
            top = self.sure.iloc[0]
            parts.append((f"what {self.names.feature(top['term'])} adds", top))
        bounds = " and ".join(
            f"{name} between {number(row['lower'])} and {number(row['upper'])}"
            for name, row in parts
        )
        return f"How sure: {self.others} would put {bounds} (95 % intervals)."

    @cached_property
    def sentence(self) -> str:
        """The explanation in words, with intervals if it has them."""
        return _in_a_sentence(self)

    @property
    def text(self) -> str:
        """The terms as a table to read in a terminal, the sentence, and what is beside them."""
        return _in_a_terminal(self)

    @property
    def beside(self) -> list[partial.Said]:
        """What S_feat, S_rest and, `with_transfer`, transfer say."""
        return partial.in_words(self.partial, self.called, self.coding)


def _in_a_sentence(why: Explanation) -> str:
    a, b = why.called
    call, rest, size = why.names.feature, why.unexplained, why.features["value"].abs()

    shown = (size >= SMALL * max(size.max(), abs(rest["value"]))) & (size >= 0.0005)
    large, others = why.features[shown], why.features[~shown]
    large = large.loc[large["value"].abs().sort_values(ascending=False).index]
    text = [f"The {why.similarity.called} of {a} and {b} is {_number(why.whole.iloc[0])}."]
    up, down = large[large["value"] > 0], large[large["value"] < 0]
    if len(up):
        parts = [f"{call(row['term'])} contributes {_number(row)}" for _, row in up.iterrows()]
        text.append(f"Of the features, {listed(parts)}.")
    if len(down):
        parts = [f"{call(row['term'])} by {_number(row, -1)}" for _, row in down.iterrows()]
        text.append(f"The two are less alike for {listed(parts)}.")
    if "chance" in large:
        weak = [call(term) for term in up[~(up["value"] > up["chance"])]["term"]]
        if weak:
            text.append(f"Permuted labels give as much for {listed(weak)}.")
    if not len(large):
        text.append("None of the features contributes much.")
    elif len(others):
        many = f"{len(others)} features together contribute"
        what = "feature contributes" if len(others) == 1 else many
        text.append(f"The other {what} {_short(others['value'].sum())}.")
    if rest["value"] >= 0:
        features = f"These features, coded by {why.coding},"
        text.append(f"{features} do not explain {_number(rest)} of it.")
    else:
        text.append(
            f"What these features do not explain makes the two less alike, by {_number(rest, -1)}."
        )
    if "lower" in why.terms:
        text.append(
            f"Brackets are 95 % intervals for {why.others}; they say nothing about other models."
        )
    return " ".join(text)


def _in_a_terminal(why: Explanation) -> str:
    whole = why.whole.iloc[:1].rename(columns={"quantity": "term"})
    rows = pd.concat((why.terms, whole.assign(term=f"{why.similarity.short} (their sum)")))
    width = max(len(term) for term in rows["term"])
    lines = []
    for _, row in rows.iterrows():
        line = f"{row['term']:<{width}}  {_short(row['value']):>7}"
        if "lower" in row.index:
            line += f"  {_short(row['lower']):>7} to {_short(row['upper']):>6}"
        lines.append(line)
    beside = [f"{said.name}: {said.value}. {said.sentence}" for said in why.beside]
    return "\n".join((*lines, "", why.sentence, *([""] if beside else []), *beside))


def _most_of_all(why: Explanation) -> str:
    """The rest of the headline's first sentence: the feature that explains most."""
    sure, least = why.sure, SMALL * why.value
    largest = why.features.loc[why.features["value"].idxmax()]
    if largest["value"] < least:
        return ", but hardly for any of these features."
    if sure is None:
        return ". Add confidence intervals to see in which feature most of all."
    sure = sure[sure["value"] >= least]
    if sure.empty:
        return ", but for none of these features more than by chance."
    top = sure.iloc[0]
    share = _share(top["value"] / why.value)
    call = why.names.feature
    text = f", most of all in {call(top['term'])}, which makes {share} of it"
    if largest["term"] == top["term"]:
        return f"{text}."
    but = "permuted labels give as much" if "chance" in top.index else "it may be chance"
    return f"{text}. More goes with {call(largest['term'])}, but {but}."


def _one(asked: Layer | str) -> Layer:
    layers = layers_in(asked)
    if len(layers) != 1:
        raise InputError(f"found {len(layers)} layers in {asked!r}; expected one, as minilm:3.")
    return layers[0]


def explain(
    analysis: Analysis,
    a: Layer | str,
    b: Layer | str,
    features: Sequence[str] | None = None,
    *,
    seed: int = 0,
    compared: Compared | None = None,
) -> Explanation:
    """Why two layers of an analysis are alike; `with_intervals` adds confidence intervals.

    Parameters
    ----------
    a, b : ("minilm", 3) or "minilm:3"
    features : only these; by default all of the analysis
    seed : of the orders of features that are sampled with more than 12 of them
    compared : all layers of the analysis by another similarity, see
        `mlem_core.analysis.similarities.compared`; None is RSA

    Raises
    ------
    InputError
        A layer or feature that the analysis does not have.
    """
    first, second = (_one(layer) for layer in (a, b))
    check_layers((first, second), analysis.layers)
    at = [analysis.layers.index(layer) for layer in (first, second)]
    whole_tables, values = analysis.tables, analysis.rsa
    if compared is not None:
        whole_tables, values = compared.tables, compared.values
    tables = whole_tables.of_layers(at)
    if features is not None:
        tables = tables.of_features(names_in(features))
    split = decompose(tables, values[np.ix_(at, at)], seed=seed)
    ceilings = ceilings_of(split.terms.sum(axis=0))
    similarity = SIMILARITIES["rsa"] if compared is None else compared.similarity
    quantities = [similarity.name, "ceiling_a", "ceiling_b"]
    whole = pd.DataFrame({"quantity": quantities, "value": [split.rsa[0, 1], *ceilings]})
    beside = pd.DataFrame(columns=["quantity", "value"])
    if similarity.name == "rsa":
        beside = partial.parts(tables, split.rsa[0, 1])
    others = Units.of(analysis.stimuli).others
    both = (first, second)
    return Explanation(
        both,
        split.pair(0, 1),
        whole,
        others=others,
        coding=tables.coding,
        names=analysis.names,
        partial=beside,
        similarity=similarity,
    )


def with_intervals(
    why: Explanation,
    analysis: Analysis,
    store: Store,
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
) -> Explanation:
    """An explanation with confidence intervals, and what chance gives.

    Intervals are over sentences and, where they recur, words.

    Parameters
    ----------
    why : of two layers of the analysis
    store : where the representations are
    n_replicates : bootstrap replicates; similarities other than RSA have the jackknife alone

    Raises
    ------
    InputError
        Too few replicates or sentences; more than 12 features; representations that are no longer
        in the store.
    """
    from mlem_core.inference.permutation import chance_terms, permuted_terms

    features, n = list(why.features["term"]), len(why.terms)
    if len(features) > EXACT_FEATURES:
        raise InputError(
            f"found {len(features)} features; intervals of the terms can be had for up to "
            f"{EXACT_FEATURES}, so choose fewer features."
        )
    if why.similarity.name != "rsa":
        return _by_jackknife(why, analysis, store, seed, progress)
    pairs = LayerPairs.of(analysis, why.layers, store, features)
    resampled = resampled_terms(pairs, n_replicates, seed, progress)
    if pairs.design is not analysis.design:
        # The value is from all pairs of the analysis, its error from fewer: a little too large.
        own = np.diagonal(Explained.of(_of_two(analysis, why)).whole)
        resampled = resampled.around(np.array([*why.terms["value"], *why.whole["value"], *own]))
    beside = _partial_with_intervals(why, pairs, resampled, n_replicates, seed, progress)
    bounds, size = resampled.interval(), (len(analysis.stimuli), analysis.tables.n_pairs)
    if not pairs.design.is_complete:
        pairs = LayerPairs.of_sample(analysis, why.layers, store, features)
    chance = chance_terms(permuted_terms(pairs, seed=seed))
    return replace(
        why,
        terms=why.terms.assign(
            lower=bounds.lower[:n], upper=bounds.upper[:n], chance=[*chance, np.nan]
        ),
        whole=why.whole.assign(lower=bounds.lower[n:-2], upper=bounds.upper[n:-2]),
        partial=beside,
        notes=(
            *caveats.of_size(Units.of(analysis.stimuli)),
            *filter(None, (caveats.drawn_of(*size), caveats.permuted_of(*size))),
        ),
    )


def _by_jackknife(
    why: Explanation, analysis: Analysis, store: Store, seed: int, progress: Counted | None
) -> Explanation:
    """`with_intervals` of a similarity that is not of ranks."""
    from mlem_core.inference.similarity_terms import of_analysis, similarity_intervals

    features = list(why.features["term"])
    given = of_analysis(analysis, why.similarity, why.layers, features, store)
    found = similarity_intervals(given[0], why.similarity, given[1], seed, progress)
    n, (lower, upper) = len(why.terms), found.interval
    return replace(
        why,
        terms=why.terms.assign(lower=lower[:n], upper=upper[:n], chance=[*found.chance, np.nan]),
        whole=why.whole.assign(lower=lower[n:], upper=upper[n:]),
        notes=caveats.of_size(Units.of(analysis.stimuli)),
    )


def with_transfer(
    why: Explanation, analysis: Analysis, selection: Selection | None = None
) -> Explanation:
    """An explanation with what the metric of each layer makes of the other.

    Parameters
    ----------
    selection : how the metrics are fitted; None: as those of the analysis. Their features are those
        of the explanation

    Raises
    ------
    InputError
        An estimator that cannot be fitted to these features.
    """
    fitted = analysis.select() if selection is None else selection
    why = replace(why, estimator=fitted.estimator, interactions=fitted.interactions)
    found = partial.transfers(_of_two(analysis, why), why.estimator)
    parts = why.partial.iloc[: len(partial.PARTS)]
    return replace(why, partial=pd.concat((parts, found), ignore_index=True))


def _partial_with_intervals(
    why: Explanation,
    pairs: LayerPairs,
    resampled: Replicates,
    n_replicates: int,
    seed: int,
    progress: Counted | None,
) -> pd.DataFrame:
    """What is beside the terms, with intervals; `resampled` as `resampled_terms` gives it."""
    split, n = len(partial.PARTS), len(why.terms) - 1
    bounds = resampled.made_into(lambda values: partial.parts_of(values, n)).interval()
    found = [partial.bounded(why.partial.iloc[:split], bounds)]
    transfers = why.partial.iloc[split:]
    if len(transfers):
        if pairs.tables.interactions != why.interactions:
            pairs = replace(pairs, tables=pairs.tables.with_interactions(why.interactions))
        again = resampled_transfers(pairs, why.estimator, n_replicates, seed, progress)
        # Where not all pairs are drawn again; else it is there.
        around = again.around(transfers["value"].to_numpy(dtype=np.float64))
        found.append(partial.bounded(transfers, around.interval()))
    return pd.concat(found, ignore_index=True)


def _of_two(analysis: Analysis, why: Explanation) -> PairTables:
    """The pair tables of an explanation."""
    at = [analysis.layers.index(layer) for layer in why.layers]
    own = analysis.tables.of_layers(at).of_features(list(why.features["term"]))
    return own.with_interactions(why.interactions)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _number(row: pd.Series, sign: int = 1) -> str:
    text = _short(sign * row["value"])
    if "lower" in row.index:
        low, high = sorted((sign * row["lower"], sign * row["upper"]))
        text += f" [{_short(low)}, {_short(high)}]"
    return text


def _short(value: float) -> str:
    # Adding 0 makes a rounded -0.0 a plain 0.
    return f"{round(value, 3) + 0.0:.3f}"
