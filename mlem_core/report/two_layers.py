"""Figures of two layers: their importances, the maps of the stimuli, why they are alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis import maps
from mlem_core.analysis.similarities import RSA
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer
from mlem_core.inference.tables import score_table, term_tests
from mlem_core.measures import nested
from mlem_core.pairs.resampling_units import Units
from mlem_core.report import captions, captions_of_maps, tables
from mlem_core.report.shown import Drawn, Shown, figure
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
def compare(shown: Shown) -> Drawn | None:
    """The importances of both layers."""
    if not shown.several:
        return None
    results, (a, b) = shown.results, shown.pair_names
    intervals = None
    if shown.intervals is not None:
        intervals = score_table(shown.intervals, list(dict.fromkeys(shown.pair))).table
    reasons = {measure: shown.reasons(measure) for measure in ("profiles", "rsa", "tau")}
    flags = of_two(reasons, *shown.pair)
    return Drawn(
        figures.importance_scatter(
            results.importance,
            shown.pair,
            shown.terms,
            float(results.similarity_profiles.loc[a, b]),
            float(results.similarity_rsa.loc[a, b]),
            figures.Annotations(intervals, flags),
        ),
        f"Importances in {shown.called[0]} and {shown.called[1]}",
        captions.compare(
            shown.basis, shown.over, flagged=bool(flags), n_features=results.n_profile_features
        ),
        _of_both(results.importance, shown.pair) if intervals is None else intervals,
        tables.importance_of(results, a, b),
    )


def _of_both(importance: pd.DataFrame, pair: tuple[Layer, Layer]) -> pd.DataFrame:
    at = list(zip(importance["model"], importance["layer"], strict=True))
    return importance[[layer in pair for layer in at]]


def stimulus_map(shown: Shown, side: int) -> Drawn | None:
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
    return Drawn(
        figures.nested_map(points, groups, by, nested.outlines(points, by), title, stress),
        f"Stimuli in {title}, groups inside groups",
        captions_of_maps.nested_map(
            [shown.names.feature(one) for one in by],
            captions.stimulus_map(len(points), len(shown.analysis.stimuli)),
        ),
        points,
        groups,
    )


def _of_side(shown: Shown, side: int) -> Drawn | None:
    return _coloured_map(shown, shown.pair[side]) if shown.several else None


def points_of(shown: Shown, layer: Layer) -> tuple[pd.DataFrame, float]:
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


def _coloured_map(shown: Shown, layer: Layer) -> Drawn | None:
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
    return Drawn(
        figures.stimulus_map(points, color, kind, title, list(shown.drawing.marked), stress),
        f"Stimuli in {title}",
        captions.stimulus_map(len(points), len(stimuli), shown.names.feature(color)),
        points,
    )


def _color_of(shown: Shown) -> str:
    """The feature that colours the stimuli: the one chosen, else the easiest to read."""
    chosen = shown.drawing.options.get("color", "")
    if chosen in shown.all_features:
        return chosen
    return maps.easiest_to_read(shown.analysis.stimuli, shown.selection.features)


@figure(
    "map_panels",
    "The stimuli in the layers of a model",
    "How the layers of a model lay out the stimuli, from the first to the last.",
    takes_long=True,
)
def map_panels(shown: Shown) -> Drawn | None:
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
    basis = captions.stimulus_map(n, len(shown.analysis.stimuli))
    return Drawn(
        figures.map_panels([one.figure for one in there], 2 if shown.drawing.narrow else 4),
        f"Stimuli in the layers of {shown.names.model(model)}",
        captions_of_maps.map_panels(color, len(drawn), len(own), basis),
        pd.concat(tables, ignore_index=True),
    )


@figure(
    "two_layers",
    "Figure 4: scatter and maps of two layers",
    "Two layers: which features matter in each, and how each lays out the stimuli.",
    offered=True,
)
def figure_4(shown: Shown) -> Drawn | None:
    """The importances of both layers and their maps in one figure."""
    scatter, sides = compare(shown), (_of_side(shown, 0), _of_side(shown, 1))
    if scatter is None or sides[0] is None or sides[1] is None:
        return None
    a, b = shown.called
    color = shown.names.feature(_color_of(shown))
    drawn: tuple[go.Figure, go.Figure] = (sides[0].figure, sides[1].figure)
    n, stimuli = len(sides[0].data), shown.analysis.stimuli
    return Drawn(
        figures.two_layers(scatter.figure, drawn, narrow=shown.drawing.narrow),
        f"{a} and {b}: importances and maps of the stimuli",
        captions.figure_4(scatter.caption, (a, b), n, len(stimuli), color),
        scatter.data,
        scatter.table,
    )


@figure(
    "why",
    "Why two layers are alike",
    "What each feature adds to the similarity of the two layers, and what no feature explains.",
    offered=True,
)
def why(shown: Shown) -> Drawn | None:
    """The similarity of both layers as a sum; None of one that has no terms."""
    if not shown.several or (shown.compared and not shown.compared.similarity.divides):
        return None
    explained, intervals, (a, b) = shown.why, shown.intervals, shown.called
    table, how, similarity = explained.terms, explained.how, explained.similarity
    of_rsa = similarity.name == RSA
    unit = () if of_rsa else (similarity.unit,)
    if of_rsa and intervals is not None and len(intervals.terms):
        tests, family = term_tests(intervals, *shown.pair, shown.correction)
        table = table.merge(tests, on="term")
        how += f"; p in the table: term other than 0, corrected over a family of {family}"
    return Drawn(
        figures.waterfall(explained.terms, shown.all_features, *unit),
        f"What makes {a} and {b} alike" + ("" if of_rsa else f" ({similarity.short})"),
        captions.why(shown.computed_on, how, Units.of(shown.analysis.stimuli).over, similarity),
        table,
    )


@figure(
    "why_tau",
    "Why two profiles are alike",
    "What each feature adds to the agreement of the two profiles.",
)
def why_tau(shown: Shown) -> Drawn | None:
    """The weighted Kendall τ of both profiles as a sum."""
    results = shown.results
    if not shown.several or results.n_profile_features < 2:
        return None
    table = tables.terms_of_tau(results, *shown.pair)
    a, b = shown.called
    return Drawn(
        figures.waterfall(table, shown.all_features, "weighted Kendall τ"),
        f"What makes the profiles of {a} and {b} alike",
        captions.why_tau(shown.basis, results.n_profile_features),
        table,
    )


def why_score(shown: Shown, side: int) -> Drawn | None:
    """The held-out ρ of one of both layers as a sum."""
    if not shown.several:
        return None
    results, layer = shown.results, shown.pair[side]
    table = tables.terms_of_score(shown.analysis, shown.selection, results, layer)
    ceiling = results.scores.groupby(["model", "layer"])["ceiling"].mean()[layer]
    return Drawn(
        figures.waterfall(table, shown.all_features, "held-out ρ"),
        f"What the score of {shown.called[side]} is made of",
        captions.why_score(float(ceiling), shown.basis),
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
    takes_long=True,
)
def claim(shown: Shown) -> Drawn | None:
    """A claim in every universe; None where these have not been computed."""
    if not shown.several:
        return None
    asked, found = claimed(shown)
    if found is None:
        return None
    table = curve(asked, found)
    return Drawn(
        figures.specification_curve(table, found.dimensions, asked.named(shown.names)),
        verdict(asked, found, shown.names).partition(";")[0],
        captions.multiverse(len(shown.analysis.stimuli), len(table), shown.analysis.spec.folds),
        table,
        by_choice(asked, found),
    )


def claimed(shown: Shown) -> tuple[Claim, multiverse.Multiverse | None]:
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
        found = multiverse.find(shown.analysis, layers, store, choices)
        if found is not None:
            return asked, found
    return asked, None
