"""Figures of two layers: their importances, the maps of the stimuli, why they are alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis import maps
from mlem_core.analysis.in_words import FOLDS, computed_on
from mlem_core.base.errors import InputError
from mlem_core.base.text import listed
from mlem_core.base.typing import Layer
from mlem_core.inference.tables import score_table, term_tests
from mlem_core.measures import nested
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA
from mlem_core.report import tables
from mlem_core.report.captions import STRESS, joined, tau_by_chance
from mlem_core.report.shown import FigureContext, RenderedFigure, figure
from mlem_core.robustness import multiverse
from mlem_core.robustness.claims import Claim, by_choice, curve, verdict
from mlem_core.robustness.flags import of_two

# Layers of a model that are drawn: each map takes some seconds when it is drawn first. In one
# column of a journal a page holds fewer.
MOST, MOST_NARROW = 12, 6


@figure(
    "compare",
    "Importances of two layers",
    "Which features matter in the two layers; on the diagonal a feature matters as much in both.",
    offered=True,
)
def compare(shown: FigureContext) -> RenderedFigure | None:
    """The importances of both layers."""
    if not shown.several:
        return None
    results, (a, b) = shown.results, shown.pair_names
    intervals = None
    if shown.intervals is not None:
        intervals = score_table(shown.intervals, list(dict.fromkeys(shown.pair))).table
    reasons = {measure: shown.reasons(measure) for measure in ("profiles", "rsa", "tau")}
    flags = of_two(reasons, *shown.pair)
    return RenderedFigure(
        figures.importance_scatter(
            results.importance,
            shown.pair,
            shown.terms,
            float(results.similarity_profiles.loc[a, b]),
            float(results.similarity_rsa.loc[a, b]),
            figures.Annotations(intervals, flags),
        ),
        f"Importances in {shown.called[0]} and {shown.called[1]}",
        compare_caption(
            shown.basis, shown.over, flagged=bool(flags), n_features=results.n_profile_features
        ),
        _of_both(results.importance, shown.pair) if intervals is None else intervals,
        tables.importance_of(results, a, b),
    )


def compare_caption(
    basis: str, over: str = "", *, flagged: bool = False, n_features: int = 0
) -> str:
    """Caption of two layers against each other.

    Parameters
    ----------
    over : what intervals are over; empty where there are none
    flagged : whether the layers, or their similarity, are flagged by an audit
    n_features : of the profiles, for what τ is by chance
    """
    spread = f"95 % confidence intervals over {over}" if over else FOLDS
    return joined(
        f"Importance of each feature in the two layers: mean over folds, bars are {spread}; on the "
        "diagonal a feature matters as much in both.",
        tau_by_chance(n_features),
        "Triangles: what changes in the audit, at the end of an axis that layer's profile, at the "
        "end of the diagonal the similarity of the two."
        if flagged
        else "",
        basis,
    )


def _of_both(importance: pd.DataFrame, pair: tuple[Layer, Layer]) -> pd.DataFrame:
    at = list(zip(importance["model"], importance["layer"], strict=True))
    return importance[[layer in pair for layer in at]]


def stimulus_map(shown: FigureContext, side: int) -> RenderedFigure | None:
    """The stimuli in one of the two layers; None where they cannot be had.

    With a feature within that of the colour chosen, as groups inside groups.
    """
    drawn, within = _of_side(shown, side), shown.drawing.options.get("within", "")
    color = _color_of(shown)
    if drawn is None or within not in shown.all_features or within == color:
        return drawn
    by, (_, stress) = [color, within], points_of(shown, shown.pair[side])
    points = maps.with_levels(drawn.data, shown.analysis.stimuli, by)
    if shown.drawing.marked:
        points = points.assign(marked=points["stimulus"].isin(shown.drawing.marked))
    groups, title = nested.nested_groups(points, by), shown.names.layer_title(shown.pair[side])
    return RenderedFigure(
        figures.nested_map(points, groups, by, nested.outlines(points, by), title, stress),
        f"Stimuli in {title}, groups inside groups",
        f"The stimuli divided by {listed(list(map(shown.names.feature, by)))}, in this order: "
        "colours and outlines (the half of a group that is nearest to its middle) are the first "
        "feature, marks the second; lines join the centre of a group to those of the groups inside "
        "it. Between groups: the share of the squared distances in the map that lies between the "
        "groups by the features so far, less what random groups have (ε²). "
        f"{map_caption(len(points), len(shown.analysis.stimuli))}",
        points,
        groups,
    )


def map_caption(n_shown: int, n_stimuli: int, color: str = "") -> str:
    """Caption of the stimuli of one layer as points.

    Parameters
    ----------
    color : the feature that colours them, where it is not said beside it
    """
    return joined(
        "Metric MDS of the neural distances: stimuli that lie close are represented alike, those "
        "far apart differently.",
        _sample(n_shown, n_stimuli),
        f"Coloured by {color}." if color else "",
        STRESS,
        computed_on(n_stimuli),
    )


def _sample(n_shown: int, n_stimuli: int) -> str:
    return f"A seeded sample of {n_shown:,} stimuli." if n_shown < n_stimuli else ""


def _of_side(shown: FigureContext, side: int) -> RenderedFigure | None:
    return _coloured_map(shown, shown.pair[side]) if shown.several else None


def points_of(shown: FigureContext, layer: Layer) -> tuple[pd.DataFrame, float]:
    """The map of the stimuli in a layer, and how far it is off.

    Raises
    ------
    InputError
        As `mlem_core.analysis.maps.stimulus_map`; there is no store.
    """
    if (store := shown.drawing.store) is None:
        raise InputError("maps of the stimuli need a store, where the representations are.")
    of = shown.analysis, *layer, store
    return shown.once(
        ("map", layer), lambda: (maps.stimulus_map(*of), maps.stimulus_map_stress(*of))
    )


def _coloured_map(shown: FigureContext, layer: Layer) -> RenderedFigure | None:
    """The stimuli in a layer, coloured by a feature; None where they cannot be had."""
    stimuli, color = shown.analysis.stimuli, _color_of(shown)
    try:
        points, stress = points_of(shown, layer)
    except InputError:
        return None  # there is no store, or the representations are no longer in it
    own = stimuli.take(points["stimulus"].to_numpy())
    labels = own.sentences
    if own.word_index is not None:
        both = zip(own.words, labels, strict=True)
        labels = [f"{word} in: {sentence}" for word, sentence in both]
    points = points.assign(**{"label": labels, color: own.table[color].to_numpy()})
    title = shown.names.layer_title(layer)
    kind = next(one.kind for one in stimuli.features if one.name == color)
    return RenderedFigure(
        figures.stimulus_map(points, color, kind, title, list(shown.drawing.marked), stress),
        f"Stimuli in {title}",
        map_caption(len(points), len(stimuli), shown.names.feature(color)),
        points,
    )


def _color_of(shown: FigureContext) -> str:
    """The feature that colours the stimuli: the one chosen, else the easiest to read."""
    chosen = shown.drawing.options.get("color", "")
    if chosen in shown.all_features:
        return chosen
    return maps.easiest_to_read(shown.analysis.stimuli, shown.selection.features)


@figure(
    "map_panels",
    "The stimuli in the layers of a model",
    "How the layers of a model lay out the stimuli, from the first to the last.",
)
def map_panels(shown: FigureContext) -> RenderedFigure | None:
    """The maps of the layers of the model that is chosen; None where they cannot be had.

    Where none is chosen they are left out: each map takes seconds, and what happens to be kept must
    not decide what is in a capsule.
    """
    store, model = shown.drawing.store, shown.drawing.options.get("mapped", "")
    own = [layer for layer in shown.selection.layers if layer[0] == model]
    drawn = maps.some_layers(own, MOST_NARROW if shown.drawing.narrow else MOST)
    if store is None or not drawn:
        return None
    plain = replace(shown, drawing=replace(shown.drawing, marked=()))
    found = [_coloured_map(plain, layer) for layer in drawn]
    there = [one for one in found if one is not None]
    if len(there) < len(found):
        return None
    tables = [
        one.data.drop(columns="label").assign(model=model, layer=layer)
        for one, (_, layer) in zip(there, drawn, strict=True)
    ]
    n, color = len(tables[0]), shown.names.feature(_color_of(shown))
    some = f" {len(drawn)} of the {len(own)} layers are drawn." if len(drawn) < len(own) else ""
    return RenderedFigure(
        figures.map_panels([one.figure for one in there], 2 if shown.drawing.narrow else 4),
        f"Stimuli in the layers of {shown.names.model(model)}",
        f"The stimuli in the layers of one model, coloured by {color}.{some} "
        f"{map_caption(n, len(shown.analysis.stimuli))}",
        pd.concat(tables, ignore_index=True),
    )


@figure(
    "two_layers",
    "Figure 4: scatter and maps of two layers",
    "Two layers: which features matter in each, and how each lays out the stimuli.",
    offered=True,
)
def figure_4(shown: FigureContext) -> RenderedFigure | None:
    """The importances of both layers and their maps in one figure."""
    scatter, sides = compare(shown), (_of_side(shown, 0), _of_side(shown, 1))
    if scatter is None or sides[0] is None or sides[1] is None:
        return None
    a, b = shown.called
    color = shown.names.feature(_color_of(shown))
    drawn: tuple[go.Figure, go.Figure] = (sides[0].figure, sides[1].figure)
    return RenderedFigure(
        figures.two_layers(scatter.figure, drawn, narrow=shown.drawing.narrow),
        f"{a} and {b}: importances and maps of the stimuli",
        joined(
            f"(a) {scatter.caption} (b, c) The stimuli in {a} and {b}, coloured by {color}: metric "
            "MDS of the neural distances; stimuli that lie close are represented alike.",
            _sample(len(sides[0].data), len(shown.analysis.stimuli)),
            STRESS,
        ),
        scatter.data,
        scatter.table,
    )


@figure(
    "why",
    "Why two layers are alike",
    "What each feature adds to the similarity of the two layers, and what no feature explains.",
    offered=True,
)
def why(shown: FigureContext) -> RenderedFigure | None:
    """The similarity of both layers as a sum; None of one that has no terms."""
    if not shown.several or (shown.compared and not shown.compared.similarity.divides):
        return None
    explained, intervals, (a, b) = shown.why, shown.intervals, shown.called
    table, how, similarity = explained.terms, explained.how, explained.similarity
    of_rsa = similarity.name == RSA
    unit = () if of_rsa else (similarity.unit,)
    what = f"The {similarity.called} ({similarity.meaning})"
    if of_rsa:
        what = "RSA (Spearman ρ of the neural distances of the two layers)"
    if of_rsa and intervals is not None and len(intervals.terms):
        tests, family = term_tests(intervals, *shown.pair, shown.correction)
        table = table.merge(tests, on="term")
        how += f"; p in the table: term other than 0, corrected over a family of {family}"
    over = Units.of(shown.analysis.stimuli).over
    return RenderedFigure(
        figures.waterfall(explained.terms, shown.all_features, *unit),
        f"What makes {a} and {b} alike" + ("" if of_rsa else f" ({similarity.short})"),
        joined(
            f"{what} as a sum: Shapley values of the part that the features account for, between "
            "disjoint sets of stimuli (a feature of pure noise adds 0 on average), and the part "
            "that they do not, which may be negative. The terms add up exactly.",
            f"Bars: 95 % confidence intervals over {over}, {how}." if how else "",
            shown.computed_on,
        ),
        table,
    )


@figure(
    "why_tau",
    "Why two profiles are alike",
    "What each feature adds to the agreement of the two profiles.",
)
def why_tau(shown: FigureContext) -> RenderedFigure | None:
    """The weighted Kendall τ of both profiles as a sum."""
    results = shown.results
    if not shown.several or results.n_profile_features < 2:
        return None
    table = tables.terms_of_tau(results, *shown.pair)
    a, b = shown.called
    return RenderedFigure(
        figures.waterfall(table, shown.all_features, "weighted Kendall τ"),
        f"What makes the profiles of {a} and {b} alike",
        "Weighted Kendall τ of the two importance profiles as a sum: each feature has half of "
        "every pair of features that it is in, + where both layers put the two in the same order, "
        "− where not. A negative bar is a feature that the two layers rank differently. Features "
        "of hardly any importance change order by chance. "
        f"{tau_by_chance(results.n_profile_features)} {shown.basis}",
        table,
    )


def why_score(shown: FigureContext, side: int) -> RenderedFigure | None:
    """The held-out ρ of one of both layers as a sum."""
    if not shown.several:
        return None
    results, layer = shown.results, shown.pair[side]
    table = tables.terms_of_score(shown.analysis, shown.selection, results, layer)
    ceiling = float(results.scores.groupby(["model", "layer"])["ceiling"].mean()[layer])
    return RenderedFigure(
        figures.waterfall(table, shown.all_features, "held-out ρ"),
        f"What the score of {shown.called[side]} is made of",
        "The held-out ρ of the metric model as a sum of Shapley values, mean over folds; the "
        f"estimated ceiling is {ceiling:.2f}. Unlike permutation importances these add up; a "
        f"feature without weight has a bar where it correlates with one that has. {shown.basis}",
        table,
    )


for _side, _place in enumerate("ab"):
    figure(
        f"stimulus_map_{_place}",
        "Map of the stimuli",
        "Stimuli that lie close together are represented alike; where stress is poor, read groups "
        "of them, not single ones.",
    )(partial(stimulus_map, side=_side))
    figure(
        f"why_score_{_place}",
        "What a layer's score is made of",
        "What each feature adds to the prediction accuracy in this layer.",
    )(partial(why_score, side=_side))


@figure(
    "multiverse",
    "A claim in every analysis variant",
    "Whether the claim holds in every analysis variant; it does above 0.",
)
def claim(shown: FigureContext) -> RenderedFigure | None:
    """A claim in every universe; None where these have not been computed."""
    if not shown.several:
        return None
    asked, found = claimed(shown)
    if found is None:
        return None
    table = curve(asked, found)
    return RenderedFigure(
        figures.specification_curve(table, found.dimensions, asked.named(shown.names)),
        verdict(asked, found, shown.names).partition(";")[0],
        "The margin of the claim in every combination of choices, in ascending order; it holds "
        "where the margin is above 0. Below: the choices of each. "
        f"{computed_on(len(shown.analysis.stimuli)).removesuffix('.')}; {len(table)} analyses, "
        f"{shown.analysis.spec.folds} folds each.",
        table,
        by_choice(asked, found),
    )


def claimed(shown: FigureContext) -> tuple[Claim, multiverse.Multiverse | None]:
    """The claim that is asked, and the universes of its layers where they have been computed.

    Without one it is that the most important feature of the first layer is that in every universe.
    """
    a, b = shown.pair
    means = shown.results.importance.groupby(["model", "layer", "feature"])["importance"].mean()
    profile = means.loc[a][lambda one: one.index.isin(shown.all_features)]
    asked = Claim("top", (a,), (str(profile.idxmax()),))
    if text := shown.drawing.options.get("claim", ""):
        asked = Claim.parse(text)
    store = shown.drawing.store
    if store is None:
        return asked, None
    # The page computes them for the two layers that it shows, and for a third of a claim.
    layers = [a, b, *(layer for layer in asked.layers if layer not in (a, b))]
    varied = multiverse.choices_of(shown.analysis)
    pooled = {"pooling": multiverse.poolings_of(shown.analysis)}
    for choices in (varied, varied | pooled):
        asked_of = shown.analysis, layers, store, choices, asked.similarities
        found = multiverse.find_multiverse(*asked_of)
        if found is not None:
            return asked, found
    return asked, None
