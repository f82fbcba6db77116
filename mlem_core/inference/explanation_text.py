"""Explanation of two layers' similarity: the terms with their intervals, and in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.labels import Names
from mlem_core.base.numbers import CONFIDENCE
from mlem_core.base.text import (
    as_html,
    fraction,
    listed,
    number_word,
    percent,
    sentence_case,
    whole_percents,
)
from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.inference.intervals import (
    PERMUTATIONS,
    SIGNIFICANT,
    FamilyOfTests,
    LayerIntervals,
    Left,
    bounds_of_largest,
    pair_similarities,
    similarity_table,
)
from mlem_core.inference.resample import HARDLY, WEAKLY
from mlem_core.measures.decomposition import IDENTITY, UNEXPLAINED, is_identity
from mlem_core.pairs.similarities import RSA, SIMILARITIES, Similarity

# Terms below this share of the largest are summed up in the sentence.
SMALL = 0.1
# Features that lower a similarity are named from this share of it on, so many at most.
LEAST, NAMED = 0.005, 2
_PERCENT = re.compile(r"\d+(?= %)")
PENDING = "What each feature accounts for is not compared with chance yet."


@dataclass(frozen=True)
class Explanation:
    """Explanation of the similarity of two layers.

    >>> explain(analysis, "m:0", "m:1").called
    ('m layer 0', 'm layer 1')

    Attributes
    ----------
    layers : the two, (model, layer)
    terms : term (the features and "unexplained"), value; with `lower`, `upper` (95 % interval) if
        they were computed, and `error` (of sampled orders) with more than 12 features. Where
        chance is known, value is the excess over `chance`, `p` is its test, and identities are
        among the terms (`ContributionNull.subtract_chance`). The values add up to the
        similarity; no rows where it has no terms
    whole : quantity (the name of the similarity), value, and lower, upper
    controls : what labels without meaning contribute, see
        `ContributionNull.control_table`; no rows where chance is not known
    notes : sentences about how far this holds
    others : what intervals are over, see `mlem_core.pairs.resampling_units.Units.others`
    coding : how the features are coded, see `mlem_core.pairs.columns.coding`
    names : what features, models and layers are called in words; the tables keep identifiers
    similarity : what the terms add up to
    held_out : what of the stimuli is tested, see `Units.held_out` there
    permutations : of the labels of each feature, where chance is computed
    how : how the intervals were computed, for a caption; empty where there are none
    among, group_mean : where the two were chosen as the most similar, "64 pairs of layers of two
        models", and a sentence on the mean over members of their groups
    TABLES : those that change where it gets intervals
    """

    TABLES: ClassVar = ("terms", "whole", "controls")

    layers: tuple[Layer, Layer]
    terms: pd.DataFrame
    whole: pd.DataFrame
    controls: pd.DataFrame = field(default_factory=pd.DataFrame)
    notes: tuple[str, ...] = ()
    others: str = "sentences"
    coding: str = "as same or different"
    names: Names = field(default_factory=Names)
    similarity: Similarity = SIMILARITIES[RSA]
    held_out: str = "unseen sentences"
    permutations: int = PERMUTATIONS
    how: str = ""
    among: str = ""
    group_mean: str = ""

    def __repr__(self) -> str:
        return " ".join(filter(None, (self.headline, self.how_sure, self.similarity.no_terms)))

    def _repr_html_(self) -> str:
        return as_html(repr(self), (), self.terms if self.similarity.divides else self.whole)

    @property
    def value(self) -> float:
        """The similarity of the two layers."""
        return float(self.whole["value"].iloc[0])

    @cached_property
    def features(self) -> pd.DataFrame:
        """The terms of the features."""
        return self.terms[~is_identity(self.terms) & (self.terms["term"] != UNEXPLAINED)]

    @cached_property
    def identities(self) -> pd.DataFrame:
        """The terms that permuted labels of units have, such as words, where they are known."""
        return self.terms[is_identity(self.terms)]

    @property
    def unexplained(self) -> pd.Series:
        """The term that no feature explains."""
        return self.terms[self.terms["term"] == UNEXPLAINED].iloc[0]

    @property
    def called(self) -> tuple[str, str]:
        """Display names of the two layers: "minilm layer 3", "brain V1"."""
        a, b = map(self.names.layer_title, self.layers)
        return a, b

    @cached_property
    def sure(self) -> pd.DataFrame | None:
        """The features that contribute more than chance, the largest first; None: not known yet.

        Those whose p is below .05, whose interval, where there is one, is above 0, and that
        contribute more than random numbers of any unit do (`random_reach`).
        """
        terms = self.features
        if "p" not in terms:
            return None
        is_sure = terms["p"] < SIGNIFICANT
        is_sure &= terms["value"] + terms["chance"] > self.random_reach
        if "lower" in terms:
            is_sure &= terms["lower"] > 0
        return terms[is_sure].sort_values("value", ascending=False, kind="stable")

    @cached_property
    def random_reach(self) -> float:
        """What a random number of each unit contributes, of any unit at most; 0 where unknown."""
        return float(self.controls["random_number"].max()) if self.most_random_unit else 0.0

    @cached_property
    def most_random_unit(self) -> str:
        """The unit whose random numbers contribute most; "" where that is not known."""
        if not len(self.controls) or self.controls["random_number"].isna().all():
            return ""
        return str(self.controls.set_index("unit")["random_number"].idxmax())

    @cached_property
    def headline(self) -> str:
        """The mean over groups where the two stand for some, and the `sentence` by their names."""
        sentence = self.sentence(" and ".join(self.called))
        text = f"{self.group_mean} Of these, {sentence}" if self.group_mean else sentence
        return text if settled(self) else f"{text} {PENDING}"

    def sentence(self, subject: str) -> str:
        """Similarity of the two layers, and what accounts for it, in one or two sentences.

        `subject` names them: "These two layers".
        They are weakly similar where their similarity is below `WEAKLY`, and hardly where it is
        below `HARDLY`, or its interval goes below 0. Shares are named once chance is known. Of a
        similarity without terms it is the number, and what it says.
        """
        value = self.value
        if not self.similarity.divides:
            return (
                f"The {self.similarity.called} of {subject} is {fraction(value)}: one layer is "
                "aligned to the other on some stimuli and compared with it on others "
                f"({self.held_out}). Unrelated layers have 0 on average."
            )
        bounded = "lower" in self.whole
        hardly = not value >= HARDLY or (bounded and self.whole["lower"].iloc[0] <= 0)
        how = "hardly " if hardly else "weakly " if value < WEAKLY else ""
        text = f"{subject} are {how}similar ({self.similarity.short} {fraction(value)})."
        return text if hardly or self.sure is None else f"{text} {_shares(self)}"

    @cached_property
    def how_sure(self) -> str:
        """The confidence intervals in a sentence, and what the two were chosen from."""
        short, sentences = self.similarity.short, []
        held = f"this inflates their {short}, and confidence intervals correct for it"
        if "lower" in self.whole:
            held = f"the lower bound of the {short} holds for all of these at once"
            bounded = [(short, self.whole.iloc[0])]
            if self.sure is not None and len(self.sure):
                top = self.sure.iloc[0]
                bounded.append((f"contribution of {self.names.feature(top['term'])}", top))
            bounds = [
                f"{name} {fraction(row['lower'])} to {fraction(row['upper'])}"
                for name, row in bounded
            ]
            sentences.append(f"95 % CI (over {self.others}): {', '.join(bounds)}.")
        if self.among:
            sentences.append(f"They were chosen as the most similar of {self.among}: {held}.")
        return " ".join(sentences)

    @property
    def text(self) -> str:
        """The terms as a table to read in a terminal, and the sentences."""
        if not self.similarity.divides:
            return repr(self)
        sentences = [repr(self), f"Features are coded {self.coding}."]
        if len(self.controls):
            reach, most = self.controls.set_index("unit")["together"].dropna(), []
            if len(reach):
                how = f"all features of the {reach.idxmax()} permuted together"
                most.append(f"{fraction(reach.max(), 3)} ({how})")
            if unit := self.most_random_unit:
                most.append(f"{fraction(self.random_reach, 3)} (a random number for each {unit})")
            sentences[1:1] = [f"Labels without meaning would contribute at most {listed(most)}."]
        return "\n".join((*_terminal_text(self), "", " ".join(sentences)))


def settled(why: Explanation) -> bool:
    """Whether all is known of an explanation that resampling can tell."""
    return "p" in why.terms or (not why.similarity.divides and "lower" in why.whole)


def _shares(why: Explanation) -> str:
    """Shares of a similarity that add up to 100 %, once chance is known.

    First the largest feature that is sure to contribute, by name, then all others together,
    identities, the features that lower the similarity most, and what is unexplained.
    """
    value, call, sure = why.value, why.names.feature, why.sure
    assert sure is not None
    top = sure[sure["value"] >= SMALL * value].head(1)
    others = why.features.drop(top.index).sort_values("value")
    lowering = others[others["value"] <= -LEAST * value].head(NAMED)
    others = others.drop(lowering.index)
    count = f"{number_word(len(others))} {'other ' * len(top)}feature{'s' * (len(others) != 1)}"
    parts = [(call(row["term"]), row["value"]) for _, row in top.iterrows()]
    parts.append((count, others["value"].sum()))
    notable = why.identities[why.identities["value"].abs() >= LEAST * value]
    if len(notable):
        units = [term.removesuffix(IDENTITY) for term in notable["term"]]
        name = units[0] + IDENTITY if len(units) == 1 else f"identities of {listed(units)}"
        parts.append((name, why.identities["value"].sum()))
    parts += [(call(row["term"]), row["value"]) for _, row in lowering.iterrows()]
    terms = [part / value for _, part in parts] + [float(why.unexplained["value"]) / value]
    *shares, rest = whole_percents(terms)
    most = math.inf if min(*shares, rest) < 0 else 1.0
    begin, text = "", list[str]()
    if not len(top):
        limit = "a tenth of it" if len(sure) else "more than chance gives"
        begin = f"No single feature accounts for {limit}. "
    for (name, _), n in zip(parts, shares, strict=True):
        several = name.endswith("features") or name.startswith("identities of ")
        if n > 0 and not text:
            verb = "together account for" if several else "accounts for"
            interval = _share_interval(top.iloc[0], most) if len(top) else ""
            text.append(f"{name} {verb} {n} %{interval}")
        elif n:
            how = f"for {n} %" if n > 0 else f"lower{'s' * (not several)} it by {-n} %"
            text.append(f"{name} {how}")
    left = f"{rest} %{_share_interval(why.unexplained, most)} is unexplained"
    if rest < 0:
        left = f"what is unexplained lowers it by {-rest} %"
    sentence = f"{begin}{sentence_case('; '.join(filter(None, (', '.join(text), left))))}."
    if any(int(n) > 100 for n in _PERCENT.findall(sentence)):
        sentence += " Shares exceed 100 % where other terms lower the similarity."
    return sentence


def _share_interval(row: pd.Series, most: float) -> str:
    """Interval of the share of a term, which ends at `most`; empty where it is not known."""
    if pd.isna(row.get("share_lower")):
        return ""
    return f" ({percent(row['share_lower'])} to {percent(min(row['share_upper'], most))})"


def _terminal_text(why: Explanation) -> list[str]:
    whole = why.whole.iloc[:1].rename(columns={"quantity": "term"})
    rows = pd.concat((why.terms, whole.assign(term=f"{why.similarity.short} (their sum)")))
    width = max(len(term) for term in rows["term"])
    lines = []
    for _, row in rows.iterrows():
        line = f"{row['term']:<{width}}  {fraction(row['value'], 3):>7}"
        if "lower" in row.index and pd.notna(row["lower"]):
            line += f"  {fraction(row['lower'], 3):>7} to {fraction(row['upper'], 3):>6}"
        lines.append(line)
    return lines


def tested_similarities(
    analysis: Analysis, intervals: LayerIntervals, layers: Sequence[Layer]
) -> FamilyOfTests:
    """`similarity_table` in which the interval of the most similar two is that of `as_chosen`.

    Returns its columns, and chosen_from: how many pairs the two are the most similar of, else 0.
    """
    table, family = similarity_table(intervals, layers)
    table, places = table.assign(chosen_from=0), intervals.places(layers)
    pairs = analysis.candidates(layers, intervals.values[np.ix_(places, places)])
    values, left = pair_similarities(intervals, layers, pairs.first, pairs.second)
    if len(values) > 1:
        best, bounds = pairs.best(values), bounds_of_largest(values, left)
        ends = [layer_name(layers[place[best]]) for place in pairs[:2]]
        row = table["layer_a"].isin(ends) & table["layer_b"].isin(ends)
        columns = [f"{intervals.similarity}_{end}" for end in ("lower", "upper")]
        of_largest_pair = bounds.lower[best], bounds.upper[best], len(values)
        table.loc[row, [*columns, "chosen_from"]] = of_largest_pair
    return FamilyOfTests(table, family)


def as_chosen(
    why: Explanation,
    analysis: Analysis,
    layers: Sequence[Layer],
    intervals: LayerIntervals | None = None,
    square: FloatArray | None = None,
) -> Explanation:
    """An explanation of two layers that says so where they are the most similar of all of these.

    Its interval then holds for all that they were chosen from, and among models of groups the mean
    over members comes first. Of any other two layers, or where the similarity of all is not known,
    it stays as it is.

    Parameters
    ----------
    intervals : of all these layers by the similarity of the explanation
    square : (n_layers, n_layers) of these layers; None is RSA, or that of the intervals
    """
    from scipy.special import ndtri

    at = [analysis.layers.index(layer) for layer in layers]
    if square is None and why.similarity.of_ranks:
        square = analysis.rsa[np.ix_(at, at)]
    elif square is None and intervals is not None:
        places = intervals.places(layers)
        square = intervals.values[np.ix_(places, places)]
    if square is None or len(layers) < 3:
        return why
    pairs, group_of = analysis.candidates(layers, square), analysis.spec.group_of
    own = square[pairs.first, pairs.second]
    best, n = (pairs.best(own), len(own)) if len(own) else (0, 0)
    if n < 2 or {*why.layers} != {layers[pairs.first[best]], layers[pairs.second[best]]}:
        return why
    cell, means, whole, sure = pairs.cell[best], pairs.means(own), why.whole.copy(), ""
    if intervals is not None:
        _, left = pair_similarities(intervals, layers, pairs.first, pairs.second)
        found = bounds_of_largest(own, left)
        whole = whole.reindex(columns=["quantity", "value", "lower", "upper"])
        whole.loc[0, ["lower", "upper"]] = found.lower[best], found.upper[best]
        mean = bounds_of_largest(means, Left(pairs.means(left.without), left.sizes))
        ends = f"{fraction(mean.lower[cell])} to {fraction(mean.upper[cell])}"
        sure = f" (95 % CI {ends}, over {intervals.units.over})"
    elif "lower" in whole:
        down, up = ndtri([CONFIDENCE ** (1 / n), CONFIDENCE]) / ndtri((1 + CONFIDENCE) / 2)
        value, low, high = whole.loc[0, ["value", "lower", "upper"]]
        whole.loc[0, ["lower", "upper"]] = value - down * (value - low), value + up * (high - value)
    members, group_mean = int((pairs.cell == cell).sum()), ""
    if members > 1:
        of = listed([f"{group_of.get(model, model)} layer {layer}" for model, layer in why.layers])
        group_mean = f"The mean {why.similarity.short} of {members} pairs of members, {of}, is "
        group_mean += f"{fraction(means[cell])}{sure}."
    return replace(why, whole=whole, among=f"{n:,} pairs of {pairs.what}", group_mean=group_mean)
