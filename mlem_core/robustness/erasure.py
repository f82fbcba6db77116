"""What changes in a model when a feature is erased from one layer, beside controls.

Controls are erased likewise, by as many directions: the feature's labels permuted at its level,
what states say along random directions, and another feature. A change counts where its interval is
beyond all of them, and beyond what the largest of all measures reaches by permuted labels.

Erasing is linear, and takes states to where the model has never been: it may break more than the
feature, and leave what is not linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.representations import representations_of
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.labels import NAMES, Names
from mlem_core.base.text import fraction, listed, many
from mlem_core.base.typing import (
    FloatArray,
    IntArray,
    Layer,
    Report,
    counting,
    layer_name,
    parse_layer,
)
from mlem_core.data.levels import MOVED, Exchange, exchanges
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.erased_measures import (
    FORMS,
    IMPORTANCE,
    PREDICTIONS,
    REST,
    RSA_WITH,
    SURPRISAL,
    Concept,
    ErasedRuns,
    Measures,
    square_ranks,
)
from mlem_core.inference.layer_pairs import sampled_rows
from mlem_core.inference.resample import check_enough, jackknife
from mlem_core.models.loading import load_with_head, open_model
from mlem_core.models.predictions import ERASED, minimal_pairs
from mlem_core.storage.store import Stage, Store

# Permutations of the feature's labels, and random subspaces.
DRAWS, SUBSPACES = 20, 5
# Stimuli that are measured at most, in whole sentences; erasers are fitted on all.
MOST = 1_000
OUTSIDE = (
    "Erasing is a linear change that takes states outside what the model was trained on: it may "
    "disturb more than the feature, and leaves what is not linear."
)


@dataclass(frozen=True)
class Erasure:
    """What erasing a feature from a layer changes.

    Attributes
    ----------
    table : measure, model, layer, feature, before, after, lower, upper, control_lower,
        control_upper, beyond. lower and upper are the 95 % interval of the change, added to
        `before`; the controls' band is that of their changes, too. `beyond`: the two are apart.
        Measures are "importance" (of `feature`), "RSA with MODEL:LAYER", "rest" (RSA of the layer
        with itself before, the feature erased there from both: below 1 where more than the feature
        itself has changed), "surprisal" (bits), and "right form" (share of minimal pairs)
    feature, model, layer : what was erased, and where
    beside : the other feature that is a control; "" where there is none
    notes : sentences about what could not be measured, and what the numbers are of

    Examples
    --------
    >>> erase(analysis, "number", "mini-gpt2:2", store).table  # doctest: +SKIP
    """

    table: pd.DataFrame
    feature: str
    model: str
    layer: int
    beside: str
    notes: tuple[str, ...]

    def sentences(self, names: Names = NAMES) -> list[str]:
        """What erasing changes: of later layers, of predictions, or of none; what comes back."""
        what = names.feature(self.feature)
        erased = f"Erasing {what} from {names.layer_title((self.model, self.layer))}"
        table, beyond = self.table, self.table[self.table["beyond"]]
        later = beyond[beyond["measure"] == REST]
        said = beyond[beyond["measure"].isin(PREDICTIONS)]
        changed = []
        if len(later):
            changed.append(f"later layers beyond {what} itself ({_numbers(later)})")
        if len(said):
            changed.append(f"predictions ({_numbers(said)})")
        if changed:
            found = [f"{erased} changes {listed(changed)} more than all controls do."]
        else:
            found = [f"{erased} changes neither later layers nor predictions beyond controls."]
        if not table["measure"].isin(PREDICTIONS).any():
            found[0] = found[0].replace("neither later layers nor predictions", "no later layer")
        own = table[(table["measure"] == IMPORTANCE) & (table["feature"] == self.feature)]
        found.append(f"The importance of {what} goes {_change(own.iloc[-1])}.")
        pairs = table[table["measure"].str.startswith(RSA_WITH)]
        for measure, rows in pairs.groupby("measure", sort=False):
            other = names.layer_title(parse_layer(str(measure).removeprefix(RSA_WITH)))
            last = rows.iloc[-1]
            known = "beyond" if last["beyond"] else "not beyond"
            found.append(f"The RSA with {other} goes {_change(last)}, {known} all controls.")
        return found


def _change(row: pd.Series) -> str:
    """A change in words, with its interval."""
    at = "" if row["measure"] in PREDICTIONS else f" in layer {int(row['layer'])}"
    numbers = [fraction(row[name]) for name in ("before", "after", "lower", "upper")]
    unit = " bits" if row["measure"] == SURPRISAL else ""
    return "from {} to {}{} (95 % CI {} to {}){}".format(*numbers[:2], unit, *numbers[2:], at)


def _numbers(rows: pd.DataFrame) -> str:
    """The measure of rows with the largest change, in words."""
    parts = []
    for measure, own in rows.groupby("measure", sort=False):
        row = own.iloc[int((own["after"] - own["before"]).abs().argmax())]
        parts.append(f"{MEASURED[str(measure)]} {_change(row)}")
    return "; ".join(parts)


MEASURED = {REST: "RSA with itself", SURPRISAL: "surprisal", FORMS: "right forms"}
STAGE = Stage("erasure", 1, Erasure)


def erase(
    analysis: Analysis,
    feature: str,
    layer: Layer | str,
    store: Store,
    report: Report | None = None,
    *,
    others: Sequence[Layer | str] = (),
    later: Sequence[int] | None = None,
    positions: str = "all",
) -> Erasure:
    """Erase a feature from a layer of a model, and measure what changes; kept in the store.

    Parameters
    ----------
    layer : of the analysis, ("mini-gpt2", 3) or "mini-gpt2:3"
    report : called with the number of erased runs done and their total
    others : layers of the analysis whose similarity with the later layers is measured
    later : numbers of later layers, by default all
    positions : which tokens are changed, one of `mlem_core.models.predictions.ERASED`

    Raises
    ------
    InputError
        A feature or layer that the analysis does not have, or one without later layers; a system
        that is no model; folds that are not over sentences; too few stimuli.

    Source: Belrose et al. (2023), LEACE.

    Examples
    --------
    It takes minutes.

    >>> erase(analysis, "part_of_speech", "mini-gpt2:3", store)  # doctest: +SKIP
    """
    where = analysis.select(layers=[layer]).layers[0]
    if others:
        others = analysis.select(layers=list(others)).layers
    asked = _Asked(analysis, feature, where, others, later, positions)
    check_choice("feature", feature, analysis.pairs.features)
    check_choice("choice of tokens", positions, ERASED)
    _check(analysis, feature, where)
    return STAGE.get(store, asked.key, lambda: _made(asked, store, report or (lambda _: None)))


class _Asked(NamedTuple):
    """What `erase` was called with."""

    analysis: Analysis
    feature: str
    layer: Layer
    others: Sequence[Any] = ()
    later: Sequence[int] | None = None
    positions: str = "all"

    @property
    def key(self) -> dict[str, Any]:
        """Key of the result."""
        chosen = replace(self.analysis.select(), layers=(self.layer, *self.others))
        more = {"erased": self.feature, "later": self.later, "positions": self.positions}
        return self.analysis.key(chosen, **more)


def known_erasure(
    analysis: Analysis, store: Store, feature: str, layer: Layer, **how: Any
) -> Erasure | None:
    """The result of `erase` if it is in the store; computes nothing."""
    return STAGE.find(store, _Asked(analysis, feature, layer, **how).key)


def _check(analysis: Analysis, feature: str, layer: Layer) -> None:
    spec = analysis.spec
    if layer[0] in dict(spec.representations):
        raise InputError(
            f"{layer[0]} is a file of representations; a feature can only be erased from a model "
            "that can be run."
        )
    kinds = {one.name: one.kind for one in analysis.stimuli.features}
    if kinds[feature] not in ("nominal", "ordered"):
        raise InputError(
            f"the feature {feature!r} is given by its distances; only one with values can be "
            "erased."
        )
    if spec.folds_over != "sentences" or spec.units != "raw":
        raise InputError(
            f"found folds over {spec.folds_over} and {spec.units} units; a feature is erased with "
            "folds over sentences and raw units, so run the analysis with these."
        )


def _made(asked: _Asked, store: Store, report: Report) -> Erasure:
    measures, notes = _measures(asked, store)
    runs, own = measures.runs, asked.analysis.stimuli
    missing = asked.analysis.spec.missing
    told = counting(report, "erased", "runs", asked.layer[0])
    total = 2 + DRAWS + SUBSPACES + 1
    told(0, total)
    was = measures.before
    concept = Concept.of(own.values(asked.feature), missing)
    rank = len(runs.erasers(runs.before[0], concept)[0].right)
    told(1, total)
    now = measures.found(concept)
    without = measures.changes_without(now, concept)
    change = jackknife(now.values - was.values, without, measures.blocks.sizes)
    way, noted = _exchange(own, asked.analysis.folds, asked.feature)
    beside = _beside(measures, own, asked.feature)
    controls = list(_controls(asked, runs, way, rank, beside))
    found = []
    for done, control in enumerate(controls, 2):
        told(done, total)
        found.append(measures.found(control).values - was.values)
    told(total, total)
    counts = np.array([name in (REST, *PREDICTIONS) for name, *_ in measures.rows])
    low, high = band(np.stack(found[:DRAWS]), np.stack(found[DRAWS:]), counts)
    table = pd.DataFrame(measures.rows, columns=["measure", "layer", "feature"])
    table.insert(1, "model", asked.layer[0])
    table["feature"] = table["feature"].where(table["feature"] != "", asked.feature)
    table = table.assign(
        before=was.values,
        after=now.values,
        lower=was.values + change.lower,
        upper=was.values + change.upper,
        control_lower=was.values + low,
        control_upper=was.values + high,
        beyond=(change.upper < low) | (change.lower > high),
    )
    of = f"{many(len(runs.shown), own.level)} of {len(own):,}"
    notes += noted + [
        f"Measured on {of}, erased by {many(rank, 'direction')}; controls: {DRAWS} permutations of "
        f"the labels among {way.unit}s, {SUBSPACES} random subspaces"
        + (f", and {NAMES.feature(beside)}" if beside else "")
        + ".",
        OUTSIDE,
    ]
    return Erasure(table, asked.feature, *asked.layer, beside, tuple(notes))


def _measures(asked: _Asked, store: Store) -> tuple[Measures, list[str]]:
    """What is measured, and a sentence on each thing that cannot be."""
    analysis, (model, number) = asked.analysis, asked.layer
    spec, rows = analysis.spec, sampled_rows(analysis, MOST)
    folds, few = analysis.folds[rows], analysis.stimuli.take(rows)
    check_enough(len(np.unique(few.groups)))
    loaded = open_model(model, spec.device, spec.dtype)
    if not same_content(analysis.manifest["models"][model], {"weights": loaded.identity}):
        raise InputError(f"{model} is no longer the one that was analysed; run the analysis again.")
    later = tuple(range(number + 1, loaded.n_layers + 1))
    if asked.later is not None:
        later = tuple(at for at in later if at in asked.later)
    if not later:
        raise InputError(
            f"found layer {number} of {model}; expected one with later layers, which are measured: "
            f"0 to {loaded.n_layers - 1}."
        )
    notes, head, forms = [], None, None
    try:
        head = load_with_head(loaded)
        forms = minimal_pairs(few, asked.feature) if loaded.causal else None
        if forms is None:
            notes.append(
                f"Right forms were not measured: the sentences have too few minimal pairs of "
                f"{NAMES.feature(asked.feature)}."
                if loaded.causal
                else f"Right forms were not measured: {model} does not read from left to right."
            )
        if not loaded.causal and few.level == "sentence":
            head = None
            notes.append(f"Predictions were not measured: {model} predicts masked words only.")
    except InputError as error:
        notes.append(f"Predictions were not measured: {error}")
    others = {}
    for layer in asked.others:
        source, distance = representations_of(analysis, layer[0], store), spec.distance_of(layer[0])
        others[layer_name(layer)] = [
            square_ranks(np.asarray(source.of(layer[1], rows[folds == fold])), distance)
            for fold in np.unique(folds)
        ]
    runs = ErasedRuns(analysis, loaded, head, (number, *later), rows, forms, asked.positions)
    return Measures(model, runs, others), notes


def _exchange(stimuli: StimulusSet, folds: IntArray, feature: str) -> tuple[Exchange, list[str]]:
    """The way in which labels are permuted: of a unit that nearly settles them, where it can be."""
    values = stimuli.values(feature)
    ways = exchanges(stimuli, folds, feature)
    able = [way for way in ways if way.moved(values) >= MOVED]
    if able:
        return able[-1], []
    return ways[0], [
        f"Few {ways[0].unit}s can change their labels of {feature}, so that the controls by "
        "permuted labels have much of the feature itself."
    ]


def _beside(measures: Measures, stimuli: StimulusSet, feature: str) -> str:
    """The other feature that matters most in the erased layer; "" where there is none."""
    able = {one.name for one in stimuli.features if one.kind in ("nominal", "ordered")}
    layer = measures.runs.layers[0]
    found = {
        name: value
        for (measure, at, name), value in zip(measures.rows, measures.before.values, strict=True)
        if measure == IMPORTANCE and at == layer and name in able - {feature}
    }
    return max(found, key=lambda name: found[name], default="")


def _controls(
    asked: _Asked, runs: ErasedRuns, way: Exchange, rank: int, beside: str
) -> Iterator[Concept]:
    """What is erased in the controls: permuted labels, then random subspaces and the other."""
    stimuli, missing = asked.analysis.stimuli, asked.analysis.spec.missing
    rng, values = np.random.default_rng(asked.analysis.spec.seed), stimuli.values(asked.feature)
    for givers in way.draw(DRAWS, rng):
        yield Concept.of(values[givers], missing)
    states = runs.before[0]
    for _ in range(SUBSPACES):
        directions = rng.standard_normal((states.shape[1], rank))
        yield Concept(states @ directions, np.ones(len(states), dtype=bool))
    if beside:
        yield Concept.of(stimuli.values(beside), missing)


def band(
    permuted: FloatArray, others: FloatArray, counts: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """The band of the changes by controls: two of (n_rows,).

    As many standard deviations around the mean of permuted labels as the largest of their changes
    is away, of all measures that count and all permutations; and what the other controls reach.

    Parameters
    ----------
    permuted, others : (n_draws, n_rows)
    counts : (n_rows,) the measures that claims are made of
    """
    mean, spread = permuted.mean(axis=0), permuted.std(axis=0, ddof=1)
    far = np.abs(permuted - mean) / np.maximum(spread, 1e-12)
    reach = (far[:, counts].max() if counts.any() else far.max()) * spread
    low, high = others.min(axis=0, initial=np.inf), others.max(axis=0, initial=-np.inf)
    return np.minimum(mean - reach, low), np.maximum(mean + reach, high)
