"""What stands below each figure: a line on the screen, and a caption for print.

The line is in the figure's record. The caption says what one sees, how it was computed and on
how much; on the screen it is folded under the line. It is a pure function of plain values: nothing
in it is a hint on how to use a screen. `basis` is its last part, see `fitted` and `computed_on`.
"""

from __future__ import annotations

import math

import pandas as pd

from mlem_core.analysis.in_words import FOLDS as FOLDS
from mlem_core.analysis.in_words import RESOLVED
from mlem_core.analysis.in_words import coded as coded
from mlem_core.analysis.in_words import computed_on as computed_on
from mlem_core.analysis.in_words import fitted as fitted
from mlem_core.base.labels import Names
from mlem_core.base.text import minus
from mlem_core.estimators.normal_equations import NOT_APART
from mlem_core.measures import similarity as similarity_measures
from mlem_core.measures.correlated import CORRELATED
from mlem_core.pairs.similarities import SIMILARITIES, Similarity


def correlated(correlations: pd.DataFrame, called: Names | None = None) -> str:
    """Which features correlate over the pairs; empty where none do.

    Parameters
    ----------
    correlations : square, as `Results.feature_correlations`
    called : how the words call features
    """
    names, call = list(correlations.columns), (called or Names()).feature
    pairs = [
        minus(f"{call(one)} and {call(other)} (r = {correlations.loc[one, other]:.2f})")
        for at, one in enumerate(names)
        for other in names[at + 1 :]
        if abs(correlations.loc[one, other]) >= CORRELATED
    ]
    if not pairs:
        return ""
    return f"The distances of {', '.join(pairs)} correlate: permuting one alone may mislead."


def ceiling(coding: str) -> str:
    """What a ceiling is a bound on; `coding` as in `mlem_core.pairs.columns.coding`."""
    text = (
        "an estimate (from means that other stimuli give) of the ρ that a function of the features "
        f"can reach, coded by {coding}"
    )
    unseen = "; it knows nothing of which values differ"
    return text if coding.startswith(RESOLVED) else text + unseen


def ceiling_of(which: str, coding: str) -> str:
    """The same of one of two layers, "first" or "second"."""
    return (
        f"How far the {which} layer's distances can correlate with a function of the features: "
        f"{ceiling(coding)}. Another coding of the same features may reach more."
    )


def profiles(
    basis: str,
    coding: str,
    family: str = "",
    over: str = "",
    *,
    flagged: bool = False,
    warning: str = "",
) -> str:
    """Importance over the layers.

    Parameters
    ----------
    coding : as in `mlem_core.pairs.columns.coding`
    family, over : what the p-values are corrected over, and what is drawn anew, see
        `mlem_core.pairs.resampling_units.Units.over`; empty where there are no intervals
    flagged : whether layers are flagged by an audit
    warning : about features that correlate
    """
    spread = f"Bands are {FOLDS}."
    if family:
        spread = (
            f"Bands are 95 % confidence intervals over {over}; a marker is open where the "
            f"importance is not above 0 (p > 0.05, corrected over a family of {family})."
        )
    return _joined(
        "Feature importance (FI): the drop of Spearman ρ on pairs of held-out stimuli when the "
        "feature is permuted, computed as an expectation; mean over folds.",
        spread,
        f"Dashed: held-out ρ of the metric model. Dotted: the ceiling, {ceiling(coding)}.",
        "Triangles: layers of which a conclusion changes in the audit." if flagged else "",
        warning,
        basis,
    )


def scores(coding: str) -> str:
    """The table of held-out scores; `coding` as in `mlem_core.pairs.columns.coding`."""
    chosen = "the ridge penalty α"
    if coding.startswith(RESOLVED):
        chosen = (
            "the strength β (column alpha) that draws the distances of values towards one distance "
            f"a feature ({NOT_APART:g}: values are not told apart)"
        )
    return (
        f"ρ, ρ with ties at random (rho_a), the ceiling, and {chosen}, as the inner "
        "cross-validation chose it."
    )


_BASELINES = {
    "decoding": "Accuracy of a linear classifier for each feature on held-out stimuli, less that "
    "of always saying the most frequent value. Unlike an importance it does not say how much of "
    "the distances a feature shapes.",
    "random-forest": "Importance of each feature in a random forest that predicts the "
    "representations; dashed: its held-out score.",
    "univariate": "Held-out ρ of a metric model fitted to each unit alone, the mean over the "
    "units.",
}


def baseline(name: str, basis: str) -> str:
    """The same layers by another method."""
    return _joined(_BASELINES[name], "Mean over folds, bands are one standard deviation.", basis)


_IMPORTANCES = {
    "conditional": "The drop of the held-out ρ when the feature is permuted among pairs that agree "
    "on all others. It is 0 for a feature that the others determine, however well a layer encodes "
    "it.",
    "left_out": "The drop of the held-out ρ when the model is fitted without the feature. It may "
    "be below 0: a model with fewer weights may generalise better.",
    "group": "The drop of the held-out ρ when these features are permuted together; their links "
    "with each other stay.",
}


def importance(kind: str, n_folds: int, basis: str) -> str:
    """Importance where features correlate."""
    how = f"Mean over {n_folds} folds, from the same tables, without sampling."
    return _joined(_IMPORTANCES[kind], how, basis)


def similarity(
    basis: str,
    family: str = "",
    over: str = "",
    *,
    flagged: bool = False,
    agreement: float = math.nan,
    n_features: int = 0,
) -> str:
    """The two matrices of similarity; `family`, `over` and `flagged` as in `profiles`.

    Parameters
    ----------
    n_features : of the profiles, for what τ is by chance
    """
    number = "" if math.isnan(agreement) else f", here {agreement:.2f}"
    return _joined(
        "Feature-based: weighted Kendall τ of the importance profiles. Feature-agnostic: RSA, "
        "Spearman ρ of the neural distances over all pairs. Their agreement is the Spearman ρ of "
        f"the two upper triangles{number}.",
        tau_by_chance(n_features),
        "Dots: pairs whose similarity changes in the audit." if flagged else "",
        f"In the table: 95 % confidence intervals over {over}, and p of RSA, corrected over a "
        f"family of {family}."
        if family
        else "",
        basis,
    )


def other_similarity(
    similarity: Similarity, basis: str, *, agreement: float = math.nan, n_features: int = 0
) -> str:
    """The two matrices where another similarity stands in the place of RSA; see `similarity`."""
    number = "" if math.isnan(agreement) else f", here {agreement:.2f}"
    return _joined(
        "Feature-based: weighted Kendall τ of the importance profiles. Feature-agnostic: the "
        f"{_explained(similarity)}, 0 on average for layers that have nothing to do with each "
        f"other. Their agreement is the Spearman ρ of the two upper triangles{number}.",
        similarity.no_terms,
        tau_by_chance(n_features),
        basis,
    )


def _explained(similarity: Similarity) -> str:
    return f"{similarity.called} ({similarity.meaning})"


def tau_by_chance(n_features: int) -> str:
    """What τ is worth with so few features; empty where it is not defined."""
    if n_features < 2:
        return ""
    return (
        f"With {n_features} features, profiles in random order have a |τ| of at most "
        f"{similarity_measures.tau_by_chance(n_features):.2f} in 95 of 100 cases."
    )


STRESS = (
    "Stress (Kruskal 1964): by how much the distances in the map are off, as a share of them; 0.05 "
    "is good, 0.1 fair, 0.2 poor, and then only what lies far apart can be read."
)


def layer_maps(basis: str) -> str:
    """The layers as points."""
    return _joined(
        "Metric MDS of 1 − similarity: layers that are alike lie close together; a line joins the "
        "layers of a model in order. The axes have no meaning of their own.",
        STRESS,
        basis,
    )


def compare(basis: str, over: str = "", *, flagged: bool = False, n_features: int = 0) -> str:
    """Two layers against each other; `over`, `flagged`, `n_features` as in `similarity`."""
    spread = f"95 % confidence intervals over {over}" if over else FOLDS
    return _joined(
        f"Importance of each feature in the two layers: mean over folds, bars are {spread}; on the "
        "diagonal a feature matters as much in both.",
        tau_by_chance(n_features),
        "Triangles: what changes in the audit, at the end of an axis that layer's profile, at the "
        "end of the diagonal the similarity of the two."
        if flagged
        else "",
        basis,
    )


def stimulus_map(n_shown: int, n_stimuli: int, color: str = "") -> str:
    """The stimuli of one layer as points; `color` where the feature is not chosen beside it."""
    sample = f"A seeded sample of {n_shown:,} stimuli." if n_shown < n_stimuli else ""
    return _joined(
        "Metric MDS of the neural distances: stimuli that lie close are represented alike, those "
        "far apart differently.",
        sample,
        f"Coloured by {color}." if color else "",
        STRESS,
        computed_on(n_stimuli),
    )


def figure_4(
    scatter: str, layers: tuple[str, str], n_shown: int, n_stimuli: int, color: str
) -> str:
    """The importances of two layers and both maps.

    Parameters
    ----------
    scatter : caption of the importances
    layers : "model:layer" of both
    n_shown, n_stimuli, color : as in `stimulus_map`
    """
    return _joined(
        f"(a) {scatter}",
        f"(b, c) The stimuli in {layers[0]} and {layers[1]}, coloured by {color}: metric MDS of "
        "the neural distances; stimuli that lie close are represented alike.",
        f"A seeded sample of {n_shown:,} stimuli." if n_shown < n_stimuli else "",
        STRESS,
    )


def why(
    basis: str, how: str = "", over: str = "", similarity: Similarity = SIMILARITIES["rsa"]
) -> str:
    """The similarity of two layers as a sum.

    Parameters
    ----------
    how, over : how its intervals were made, and what is drawn anew, as in `profiles`; empty where
        there are none
    """
    what = "RSA (Spearman ρ of the neural distances of the two layers)"
    if similarity.name != "rsa":
        what = f"The {_explained(similarity)}"
    return _joined(
        f"{what} as a sum: Shapley values of "
        "the part that the features account for, between disjoint sets of stimuli (a feature of "
        "pure noise adds 0 on average), and the part that they do not, which may be negative. The "
        "terms add up exactly.",
        f"Bars: 95 % confidence intervals over {over}, {how}." if how else "",
        basis,
    )


def why_tau(basis: str, n_features: int = 0) -> str:
    """The weighted Kendall τ of two layers as a sum; `n_features` as in `similarity`."""
    return _joined(
        "Weighted Kendall τ of the two importance profiles as a sum: each feature has half of "
        "every pair of features that it is in, + where both layers put the two in the same order, "
        "− where not. A negative bar is a feature that the two layers rank differently. Features "
        "of hardly any importance change order by chance.",
        tau_by_chance(n_features),
        basis,
    )


def why_score(ceiling: float, basis: str) -> str:
    """The held-out ρ of a layer as a sum."""
    return _joined(
        "The held-out ρ of the metric model as a sum of Shapley values, mean over folds; the "
        f"estimated ceiling is {ceiling:.2f}. Unlike permutation importances these add up; a "
        "feature without weight has a bar where it correlates with one that has.",
        basis,
    )


def why_layers(basis: str, similarity: Similarity = SIMILARITIES["rsa"]) -> str:
    """The terms of the similarity of every two layers."""
    return _joined(
        f"What each feature contributes to the {similarity.called} of every two layers (Shapley "
        "values, cross-fitted), and what these features do not explain. Orange: it makes the two "
        "alike; blue: it sets them apart.",
        basis,
    )


_UNITS = (
    "in units of the fitted target (squared neural distances, or their ranks, scaled to [0, 1] in "
    "each layer)"
)


def value_matrices(feature: str, basis: str) -> str:
    """The distance of every two values of a feature."""
    return _joined(
        f"Squared distance of every two values of {feature} in the metric model (mean over folds), "
        f"{_UNITS}. Rings: the distance of two stimuli of one value, beyond what all pairs share. "
        "Crosses: values that no pair of stimuli has, where the penalty alone decides.",
        basis,
    )


def value_map(feature: str, basis: str) -> str:
    """The values of a feature as points."""
    return _joined(
        f"Metric MDS of the values of {feature}: near where the means of their representations are "
        "near (square root of the separation w_ab). The wider a ring, the more the stimuli of the "
        "value differ among themselves. The axes have no meaning of their own.",
        STRESS,
        basis,
    )


def value_lines(feature: str, basis: str) -> str:
    """The distances of the values over the layers."""
    return _joined(
        f"Squared distance of every two values of {feature} over the layers (mean over folds), "
        f"{_UNITS}. Named are the pairs furthest apart on average.",
        basis,
    )


def value_scatter(feature: str, basis: str) -> str:
    """The distances of the values in two layers."""
    return _joined(
        f"Squared distance of every two values of {feature} in the two layers (mean over folds), "
        f"{_UNITS}: compare the order of the pairs, which Spearman's ρ does. In blue and named: "
        "the pairs furthest apart, and those whose rank differs most.",
        basis,
    )


def value_table(feature: str) -> str:
    """The table behind these figures."""
    return (
        f"The values of {feature}: distance (squared, {_UNITS}) and its standard deviation over "
        "folds, separation (its part between the means of the two values) and the pairs of stimuli "
        "that it is seen in."
    )


def feature_counts(n_stimuli: int) -> str:
    """The values of the features."""
    return f"How many of the {n_stimuli:,} stimuli have each value."


def feature_correlations(basis: str) -> str:
    """How far the features vary together."""
    return _joined(
        "Pearson correlation of the distances of two features over all pairs of stimuli; where it "
        "is far from 0, the importances of the two cannot be told apart well.",
        basis,
    )


def audit(n_stimuli: int, n_pairs: int) -> str:
    """How much of each possible artefact there is in each layer."""
    basis = computed_on(n_stimuli, n_pairs).removesuffix(".")
    return (
        "A row a possible artefact, a column a layer, from 0 (none) to 1; a dot marks a layer "
        "about which a conclusion changes by twice the limit or more. "
        f"{basis} with all features of the analysis."
    )


def multiverse(n_stimuli: int, n_analyses: int, n_folds: int) -> str:
    """A claim under every combination of choices."""
    basis = computed_on(n_stimuli).removesuffix(".")
    return (
        "The margin of the claim in every combination of choices, in ascending order; it holds "
        f"where the margin is above 0. Below: the choices of each. {basis}; {n_analyses} analyses, "
        f"{n_folds} folds each."
    )


def side_by_side(names: tuple[str, str]) -> str:
    """Profiles of two analyses, by what these are called."""
    return _joined(
        f"First (left): “{names[0]}”. Second (right): “{names[1]}”.",
        "Feature importance (FI) by layer, mean over folds, on one scale; bands are "
        f"{FOLDS}. Dashed: held-out ρ. Dotted: the ceiling.",
    )


def two_analyses(
    what: str, names: tuple[str, str], over: str, family: str, mark: str, caveat: str = ""
) -> str:
    """Differences of two analyses; without intervals `over` is empty.

    Parameters
    ----------
    mark : what stands in the figure where a difference is not 0
    caveat : on the intervals
    """
    return _joined(
        f"{what}: “{names[0]}” less “{names[1]}”.",
        f"95 % intervals over {over}, of which the same are left out of both." if over else "",
        f"{mark}: not 0 (p ≤ 0.05, corrected over a family of {family})." if over else "",
        caveat if over else "",
    )


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))
