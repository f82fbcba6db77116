"""What changes in a model when a feature is erased from one layer, beside controls.

Controls are erased likewise, and spare the feature: its labels permuted at its level, and random
subspaces of what its eraser leaves, with as much variance. A change counts where it is beyond what
the farthest control of either kind reaches in any measure.

Erasing is linear, and takes states to where the model has never been: it may break more than the
feature, and leave what is not linear. So a change counts only if it comes, too, where states get
the mean of another stimulus's value instead: they stay where the model has been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
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
from mlem_core.extensions.erasure.erasers import ERASED, Eraser, minimal_pairs
from mlem_core.extensions.erasure.measures import (
    FORMS,
    IMPORTANCE,
    PREDICTIONS,
    REST,
    RSA_WITH,
    SURPRISAL,
    Concept,
    ErasedRuns,
    fold_ranks,
)
from mlem_core.inference.layer_pairs import sampled_rows
from mlem_core.inference.permutation_null import permutation_null
from mlem_core.inference.resample import check_enough, jackknife
from mlem_core.representations.loading import load_with_head, open_model
from mlem_core.stimuli.levels import exchanges
from mlem_core.storage.store import Store
from mlem_core.tasks.followups import JobType, Options

# Permutations of the feature's labels, and random subspaces: by chance the feature is beyond all of
# either in one of 21 cases.
DRAWS = 20
# The smallest spread of changes, of correlations, bits and shares, that is no rounding error.
_SPREAD = 1e-3
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
        control_upper, interchanged, beyond. lower and upper are the 95 % interval of the change,
        added to `before`; so is the band of the controls, as large a change as they reach up and
        down. `interchanged` is the measure where states get the mean of the value of another
        stimulus. `beyond`: after and interchanged are outside the band.
        Measures are "importance" (of `feature`), "RSA with MODEL:LAYER", "rest" (RSA of the layer
        with itself before, the feature erased there from both: below 1 where more than the feature
        itself has changed), "surprisal" (bits), and "right form" (share of minimal pairs)
    feature, model, layer : what was erased, and where
    controls : (2, n_draws, n_rows) the changes in the rows of the table by permuted labels, and by
        random subspaces
    notes : sentences about what could not be measured, and what the numbers are of

    Examples
    --------
    >>> erase(analysis, "number", "mini-gpt2:2", store).table  # doctest: +SKIP
    """

    table: pd.DataFrame
    feature: str
    model: str
    layer: int
    controls: FloatArray
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
    positions : which tokens are changed, one of `mlem_core.extensions.erasure.erasers.ERASED`

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
    spec, model_layer = analysis.spec, analysis.select(layers=[layer]).layers[0]
    check_choice("feature", feature, analysis.pairs.features)
    check_choice("choice of tokens", positions, ERASED)
    if model_layer[0] in dict(spec.representations):
        raise InputError(
            f"{model_layer[0]} is a file of representations; a feature can only be erased from a "
            "model that can be run."
        )
    kinds = {column.name: column.kind for column in analysis.stimuli.features}
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
    return ERASURE.get(
        SelectionContext.from_analysis(analysis, store, report),
        feature=feature,
        layer=model_layer,
        others=analysis.select(layers=list(others)).layers if others else (),
        later=later,
        positions=positions,
    )


def compute_erasure(
    context: SelectionContext, feature: str, layer: Layer, **options: Any
) -> Erasure:
    """What `erase` gives, of choices that have been checked."""
    analysis = context.analysis
    runs, notes = open_runs(context, feature, layer, **options)
    values, missing = analysis.stimuli.values(feature), analysis.spec.missing
    progress, done = counting(context.report, "erased", "runs", layer[0]), count(2)
    total = 3 + 2 * DRAWS
    progress(0, total)
    before, states = runs.original.values, runs.original_states[0]
    concept = Concept.from_values(values, missing)
    progress(1, total)
    erased = runs.with_erased(concept)
    after = erased.values
    without = runs.jackknife_changes(erased, concept)
    change = jackknife(after - before, without, runs.blocks.sizes)

    def control_change(control: Concept) -> FloatArray:
        progress(next(done), total)
        return runs.with_erased(control).values - before

    def permuted(givers: IntArray) -> FloatArray:
        """Changes by the feature, whose labels come first, and by labels that are permuted."""
        others = [Concept.from_values(values[row], missing) for row in givers[1:]]
        draws = [control_change(other._replace(spared=concept.columns)) for other in others]
        return np.stack([after - before, *draws])

    def removed(givers: IntArray) -> FloatArray:
        """Variance that permuted labels take from the states, which is quick."""
        left = [Concept.from_values(values[row], missing).eraser(states)(states) for row in givers]
        return np.array([(states - each).var(axis=0).sum() for each in left])

    rng = np.random.default_rng(analysis.spec.seed)
    interchanged = control_change(concept.interchanged(rng))
    ways = exchanges(analysis.stimuli, analysis.folds, feature)
    null = permutation_null(ways, values, permuted, DRAWS, rng, removed)
    eraser, everyone = concept.eraser(states), np.ones(len(states), dtype=bool)
    subspaces = [
        control_change(Concept(columns, everyone, spared=concept.columns))
        for columns in matched_subspaces(states, eraser, DRAWS, rng)
    ]
    progress(total, total)
    table = pd.DataFrame(runs.rows, columns=["measure", "layer", "feature"])
    names = table["measure"].to_numpy()
    draws = null.draws, np.stack((null.draws[0], *subspaces))
    reach = np.max([control_reach(changes, names != IMPORTANCE) for changes in draws], axis=0)
    table.insert(1, "model", layer[0])
    table["feature"] = table["feature"].where(table["feature"] != "", feature)
    table = table.assign(
        before=before,
        after=after,
        lower=before + change.lower,
        upper=before + change.upper,
        control_lower=before - reach,
        control_upper=before + np.where(names == REST, 0.0, reach),
        interchanged=before + interchanged,
        beyond=(np.abs((null.draws[0], interchanged)) > reach).all(axis=0) & (not null.unknown),
    )
    stimuli = f"{many(len(runs.shown), analysis.stimuli.level)} of {len(analysis.stimuli):,}"
    rank = many(len(eraser.right), "direction")
    if null.unknown:
        notes.append(f"Nothing is claimed of {feature}: {null.unknown}.")
    notes += [
        f"Measured on {stimuli}, erased by {rank}; controls: {DRAWS} permutations of the labels "
        f"among {null.unit}s, and {DRAWS} random subspaces of what is left.",
        OUTSIDE,
    ]
    controls = np.stack([changes[1:] for changes in draws])
    return Erasure(table, feature, *layer, controls, tuple(notes))


def _erasure_key(
    context: SelectionContext,
    *,
    feature: str,
    layer: Layer,
    others: Sequence[Layer],
    later: Sequence[int] | None,
    positions: str,
) -> dict[str, Any]:
    """An erasure is of all features, and of these layers."""
    selection = replace(context.analysis.select(), layers=(layer, *others))
    return context.analysis.key(selection, erased=feature, later=later, positions=positions)


ERASURE = Stage[Erasure]("erasure", 2, Erasure, compute_erasure, key=_erasure_key)


def open_runs(
    context: SelectionContext,
    feature: str,
    layer: Layer,
    *,
    others: Sequence[Layer],
    later: Sequence[int] | None,
    positions: str,
) -> tuple[ErasedRuns, list[str]]:
    """The model and what is measured of it, and a sentence on each thing that cannot be."""
    analysis, (model, number) = context.analysis, layer
    spec, rows = analysis.spec, sampled_rows(analysis, MOST)
    folds, stimuli = analysis.folds[rows], analysis.stimuli.take(rows)
    check_enough(len(np.unique(stimuli.groups)))
    loaded = open_model(model, spec.device, spec.dtype)
    if not same_content(analysis.manifest["models"][model], {"weights": loaded.identity}):
        raise InputError(f"{model} is no longer the one that was analysed; run the analysis again.")
    if not loaded.streams:
        raise InputError(
            f"what enters the blocks of {model} is not its layers, so that nothing can be erased "
            "from them: choose another model."
        )
    layers = tuple(range(number + 1, loaded.n_layers + 1))
    if later is not None:
        layers = tuple(at for at in layers if at in later)
    if not layers:
        raise InputError(
            f"found layer {number} of {model}; expected one with later layers, which are measured: "
            f"0 to {loaded.n_layers - 1}."
        )
    notes, head, forms = [], None, None
    try:
        head = load_with_head(loaded)
        forms = minimal_pairs(stimuli, feature) if loaded.causal else None
        if not loaded.causal:
            notes.append(
                f"Right forms were not measured: {model} does not read from left to right."
            )
        elif forms is None:
            notes.append(
                "Right forms were not measured: the sentences have too few minimal pairs of "
                f"{NAMES.feature(feature)}."
            )
        if not loaded.causal and stimuli.level == "sentence":
            head = None
            notes.append(f"Predictions were not measured: {model} predicts masked words only.")
    except InputError as error:
        notes.append(f"Predictions were not measured: {error}")
    ranks = {}
    for other in others:
        source = get_representations(analysis, other[0], context.required_store)
        representations = np.asarray(source.rows(other[1], rows))
        distance = spec.neural_distance(other[0])
        ranks[layer_name(other)] = fold_ranks(representations, folds, distance)
    runs = ErasedRuns(
        analysis, model, loaded, head, (number, *layers), rows, forms, positions, ranks
    )
    return runs, notes


def matched_subspaces(
    states: FloatArray, eraser: Eraser, n: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Random subspaces of what an eraser leaves, as coordinates of states: (n_stimuli, rank) each.

    Erasing one takes as much variance from the states as the eraser does, along as many directions;
    less where no so many have it.

    Parameters
    ----------
    states : (n_stimuli, n_units)
    """
    left = eraser(states)
    removed = (states - left).var(axis=0).sum()
    axes, sizes, _ = np.linalg.svd(left - left.mean(axis=0), full_matrices=False)
    axes, sizes = axes[:, sizes > 1e-6 * sizes[0]], sizes[sizes > 1e-6 * sizes[0]]
    variances = sizes**2 / len(states)
    for _ in range(n):
        noise = rng.standard_normal((len(sizes), min(len(eraser.right), len(sizes))))
        # Directions are random, times a power of their variance that is bisected.
        low, high = -4.0, 4.0
        for _ in range(30):
            power = (low + high) / 2
            basis = np.linalg.qr((variances / variances[0])[:, None] ** power * noise)[0]
            if (basis**2 * variances[:, None]).sum() < removed:
                low = power
            else:
                high = power
        yield axes @ basis


def control_reach(changes: FloatArray, counts: NDArray[np.bool_]) -> FloatArray:
    """The largest change, up or down, that is within reach of controls: (n_rows,).

    Sizes of changes are standardised for each measure, those of the feature with the others. The
    reach is the largest of controls in any measure that counts. So if the feature is like them it
    is beyond their reach, in any of these measures, in one of n_draws + 1 cases.

    Parameters
    ----------
    changes : (n_draws + 1, n_rows) of the feature, then of controls
    counts : (n_rows,) the measures that claims are made of

    Source: Westfall and Young (1993), resampling-based multiple testing.
    """
    sizes = np.abs(changes)
    mean, spread = sizes.mean(axis=0), sizes.std(axis=0) + _SPREAD
    reach: FloatArray = mean + ((sizes - mean) / spread)[1:, counts].max() * spread
    return reach


def erasure_choice(options: Options) -> dict[str, Any]:
    """Choice of an erasure, as `ERASURE` takes it, by the options of the figure `erasure`."""
    return {
        "feature": options["erased"],
        "layer": parse_layer(options["erased_at"]),
        "others": (parse_layer(options["other"]),) if options.get("other") else (),
        "later": None,
        "positions": options.get("erased_tokens", "all"),
    }


JOB = JobType(
    lambda context, options: erase(
        context.analysis,
        store=context.required_store,
        report=context.report,
        **erasure_choice(options),
    ),
    models=lambda context, options: [model for model, _ in erasure_choice(options)["others"]],
)
