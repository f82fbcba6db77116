"""The canvas of two layers as plain lists: matrix, finding, contributions, and maps of the stimuli.

JavaScript draws it (`report/canvas/`); everything in it is of the records that other figures are
drawn from. Names and cells of users are texts in it, never markup. The content of its views of all
layers is made in `layer_views`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.flags import layer_reasons, reasons, variance_flags
from mlem_core.analysis.layer_sources import missing_representations
from mlem_core.base.parameters import Registry
from mlem_core.base.text import fraction, sentence_case, with_ends
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.extending import Check, entry_modules, functions, panels, resolve
from mlem_core.figures.context import FigureContext
from mlem_core.figures.layer_views import (
    importance_content,
    layer_map_content,
    rounded_lists,
    surprise_content,
)
from mlem_core.figures.style import PALETTE, SEQUENTIAL, SIGNIFICANT
from mlem_core.inference.explanation_text import Explanation, settled
from mlem_core.inference.intervals import SMALL_IDENTITY
from mlem_core.measures.decomposition import UNEXPLAINED, is_identity, sort_terms

Canvas = dict[str, Any]
NO_NUMBER = -128


@dataclass(frozen=True)
class CanvasMaps:
    """Maps of the stimuli in every layer, which an extension adds to the canvas.

    Attributes
    ----------
    name : of the maps
    describe : content of the canvas on the stimuli that are shown, from the context: their words,
        sentences, places, features and "colour", the feature that colours them
    find : points (n_shown, 2) of these stimuli in a layer; None where they are not cached
    compute : computes and keeps them; raises InputError where there are no representations
    """

    name: str
    describe: Callable[[FigureContext], Canvas]
    find: Callable[[FigureContext, Layer], FloatArray | None]
    compute: Callable[[FigureContext, Layer], object]


CANVAS_MAPS = Registry[CanvasMaps]("canvas maps", entry_modules)


def canvas_maps() -> CanvasMaps | None:
    """The maps that the canvas shows; None where no extension adds any."""
    return next(iter(CANVAS_MAPS.values()), None)


def canvas_data(context: FigureContext, progress: str = "") -> Canvas:
    """Content of the canvas for the two layers of a context, as JSON can hold it.

    Layers are named by their place in `layers`; maps are there of those layers of the two models
    whose maps are kept, by that place as text, or None without an extension that adds them. Missing
    numbers are None. `progress` is that of `pair_data`.
    """
    layers, maps = context.selection.layers, canvas_maps()
    similarity = "RSA" if context.compared is None else context.compared.similarity.name
    known = context.awaits_fits, context.similarity_tests is None, context.importance_chance is None
    shared = "canvas", repr(context.names), similarity, known
    return {
        **context.once(shared, lambda: _shared_content(context)),
        "pair": [layers.index(layer) for layer in context.pair],
        **pair_data(context, progress),
        **({} if maps is None else maps.describe(context)),
        "maps": None if maps is None else _maps(context, layers),
    }


def pair_data(context: FigureContext, progress: str = "") -> Canvas:
    """What explains the similarity of the two layers of a context: the part that is theirs.

    `progress` ends the text of the chip while chance is computed.
    """
    why = context.why
    remarks = [resolve(panel.remark)(context) for panel in panels("details") if panel.remark]
    return {
        "finding": why.sentence("These two layers"),
        "more": " ".join(filter(None, remarks)),
        "chips": chips(context, why, progress),
        "terms": _terms(context, why),
        "total": _rounded(why.value),
    }


def _shared_content(context: FigureContext) -> Canvas:
    """Content that every two layers share."""
    layers, names = context.selection.layers, context.names
    return {
        "layers": [
            {
                "model": layer[0],
                "number": layer[1],
                "title": names.layer_title(layer),
                "label": names.layer_label(layer),
                "tick": names.own(layer) or str(layer[1]),
            }
            for layer in layers
        ],
        "models": _models(context),
        "similarity": _similarity(context),
        "importance": importance_content(context),
        "layerMap": layer_map_content(context) if context.several else [None, None],
        "surprises": surprise_content(context) if context.several else [],
        "palette": list(PALETTE),
        "ramp": list(SEQUENTIAL),
    }


def _models(context: FigureContext) -> dict[str, dict[str, str]]:
    """Name of each model, its family or group, and what it is called inside that."""
    names, models = context.names, list(dict.fromkeys(m for m, _ in context.selection.layers))
    content = {}
    for family, variants in names.families(models).items():
        for model, variant in variants.items():
            content[model] = {
                "name": names.model(model),
                "family": names.groups.get(model, family),
                "member": variant.removeprefix("seed "),
            }
    return {model: content[model] for model in models}


def checks(context: FigureContext) -> list[Check]:
    """Checks of the finding on the two layers by extensions."""
    return [check(context) for check in functions("check")]


def verdicts(context: FigureContext) -> pd.DataFrame:
    """Claims on the two layers, a row each: claim, verdict ("holds", "fails", "not tested"), basis.

    That they are similar, that no artefact makes them so, and of each feature that its contribution
    exceeds chance, the largest first.
    """
    why, untested = context.why, "not tested"
    whole, (a, b) = why.whole.iloc[0], map(context.names.layer_title, context.pair)
    similar = untested
    if "lower" in why.whole and pd.notna(whole["lower"]):
        similar = "holds" if whole["lower"] > 0 else "fails"
    rows = [(f"{a} and {b} are similar", similar, _interval(why.similarity.short, whole))]
    for check in checks(context):
        basis = " ".join([f"{sentence_case(check.badge)}.", *_dominated(context)])
        rows.append((check.claim, check.verdict, basis))
    sure = why.sure
    for _, row in why.features.sort_values("value", ascending=False).iterrows():
        known = sure is not None and pd.notna(row["p"])
        above = sure is not None and row["term"] in set(sure["term"])
        verdict = untested if not known else "holds" if above else "fails"
        basis = _interval("contribution", row)
        basis += f", p\xa0=\xa0{fraction(row['p'], 3)}" if known else ""
        name = context.names.feature(row["term"])
        rows.append((f"{sentence_case(name)} contributes more than chance", verdict, basis))
    return pd.DataFrame(rows, columns=["claim", "verdict", "basis"])


def _interval(name: str, row: pd.Series) -> str:
    """A value with its 95 % confidence interval, where it has one."""
    ends = (row.get(end, np.nan) for end in ("lower", "upper"))
    return f"{name} {with_ends(row['value'], *ends)}"


def chips(context: FigureContext, why: Explanation, progress: str = "") -> list[dict[str, str]]:
    """How sure the finding is, and whether it passes the checks of extensions.

    Each has a state ("provisional", "sure" or "fails"), a text, and more of it, a line a sentence.
    `progress` follows the text while intervals and chance are computed: " 40 %".
    """
    state, text = "sure", "no confidence interval"
    if not settled(why):
        state, text = "provisional", f"intervals:{progress or ' not computed yet'}"
    elif "lower" in why.whole:
        low, high = why.whole.loc[0, ["lower", "upper"]]
        text = f"95 % CI {fraction(low)} to {fraction(high)}"
        text += f", largest of {why.among.partition(' ')[0]} pairs" * bool(why.among)
    lines = [*filter(None, [why.how_sure]), *why.notes]
    found = [{"state": state, "text": text, "more": "\n".join(lines)}]
    for check in checks(context):
        states = {"holds": "sure", "fails": "fails"}
        found.append(
            {
                "state": states.get(check.verdict, "provisional"),
                "text": check.badge,
                "more": "\n".join(f"{sentence_case(reason)}." for reason in check.reasons),
            }
        )
    if marks := _dominated(context):
        dominated = "one position or unit dominates"
        found.append({"state": "fails", "text": dominated, "more": "\n".join(marks)})
    return found


def _dominated(context: FigureContext) -> list[str]:
    """Sentences on the layers of the two whose variance lies at one position, or in one unit."""
    marks = {"profiles": reasons(variance_flags(context.analysis.variance), "profiles")}
    title = context.names.layer_title
    return [
        f"In {title(layer)} {why}." for layer, why in layer_reasons(marks, context.pair).items()
    ]


def _similarity(context: FigureContext) -> list[dict[str, Any]]:
    """The two matrices: name, label, values, and the cells where chance gives as much."""
    results, other, tested = context.results, context.compared, context.similarity_tests
    square, name, label = results.similarity_rsa, "RSA", "by neural distances"
    if other is not None:
        square, name, tested = other.square, other.similarity.short, None
        label = "by similarity"
    distances, profiles = list[list[int]](), list[list[int]]()
    if tested is not None:
        table, places = tested.table, {layer: place for place, layer in enumerate(square.index)}
        pairs = np.column_stack([table[side].map(places) for side in ("layer_a", "layer_b")])
        distances = pairs[table["rsa_p_corrected"].to_numpy() >= SIGNIFICANT].tolist()
        profiles = pairs[table["weighted_tau_lower"].to_numpy() <= 0].tolist()
    tau = packed(results.similarity_profiles.to_numpy())
    return [
        {"name": name, "label": label, "values": packed(square.to_numpy()), "chance": distances},
        {"name": "τ", "label": "by feature importance", "values": tau, "chance": profiles},
    ]


def packed(square: FloatArray) -> str:
    """Upper triangle of a symmetric matrix of similarities in base64, for a page of many layers.

    A byte a cell, row by row, in hundredths, as they are shown; `NO_NUMBER` where there is none.
    """
    upper = np.asarray(square, dtype=np.float64)[np.triu_indices(len(square))]
    hundredths = np.where(np.isfinite(upper), np.round(100 * upper), NO_NUMBER)
    return base64.b64encode(hundredths.astype(np.int8).tobytes()).decode()


def _terms(context: FigureContext, why: Explanation) -> list[dict[str, Any]]:
    """The contributions, the largest first; identities and what is unexplained come last."""
    if not why.similarity.divides:
        return []
    sure = why.sure
    named = None if sure is None else set(sure["term"])
    identities = is_identity(why.terms)
    last = {*why.terms[identities]["term"], UNEXPLAINED}
    hidden = identities & (why.terms["value"].abs() < SMALL_IDENTITY * abs(why.value))
    return [
        {
            "name": row["term"],
            "label": context.names.feature(row["term"]),
            "value": _rounded(row["value"]),
            "reach": _reach(why, row),
            "lower": _rounded(row.get("lower", np.nan)),
            "upper": _rounded(row.get("upper", np.nan)),
            "kind": "rest" if row["term"] in last else "feature" if settled(why) else "open",
            "chance": named is not None and row["term"] not in (*named, *last),
        }
        for row in sort_terms(why.terms[~hidden]).to_dict("records")
    ]


def _reach(why: Explanation, row: dict[str, Any]) -> float | None:
    """What random labels reach, beyond their mean; None where that is not known."""
    if not why.random_reach or row["term"] not in set(why.features["term"]):
        return None
    return _rounded(max(0.0, why.random_reach - row["chance"]))


def _maps(context: FigureContext, layers: Sequence[Layer]) -> dict[str, list[list[float]]]:
    """x and y of each stimulus in the layers of the two models whose maps are kept."""
    models, found = {model for model, _ in context.pair}, {}
    for place, layer in enumerate(layers):
        if layer[0] in models and (points := map_coordinates(context, layer)) is not None:
            found[str(place)] = points
    return found


def map_coordinates(context: FigureContext, layer: Layer) -> Any:
    """x and y of the stimuli in a layer as lists; None where there is no map in the store."""

    def find() -> Any:
        maps = canvas_maps()
        points = None if maps is None else maps.find(context, layer)
        return None if points is None else rounded_lists(points.T)

    options = tuple(sorted(context.drawing.options.items()))
    return context.once(("points", layer, options), find)


def compute_map(context: FigureContext, layer: Layer) -> None:
    """Compute the map of the stimuli in a layer and keep it.

    Raises InputError: there is no store, or the representations are no longer in it.
    """
    maps = canvas_maps()
    if maps is not None:
        maps.compute(context, layer)


def lacking_maps(context: FigureContext) -> list[Layer]:
    """Layers of the compared two whose maps are not cached yet, but can be made."""
    analysis, store = context.analysis, context.store
    lacking = [layer for layer in context.pair if map_coordinates(context, layer) is None]
    if not lacking or store is None or canvas_maps() is None:
        return []
    without = missing_representations(analysis, [model for model, _ in lacking], store)
    return [layer for layer in lacking if layer[0] not in without]


def _rounded(value: float) -> float | None:
    return round(float(value), 4) + 0.0 if np.isfinite(value) else None
