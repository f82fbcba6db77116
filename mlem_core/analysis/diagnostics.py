"""Checks of stimuli and features for what makes a result uncertain, before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.planning import check_columns, sampled_rows
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.text import fraction, listed, many, percent, plural, sentence_case
from mlem_core.base.typing import IntArray
from mlem_core.measures.similarity import correlations_of_features, plain_columns
from mlem_core.pairs.columns import AUTO, FeatureColumn, feature_columns, resolved_columns
from mlem_core.pairs.moments import PairMoments, moments_of_columns
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.stimuli.folds import number_of_folds, stimulus_folds, tested
from mlem_core.stimuli.levels import STIMULUS, constant_unit
from mlem_core.stimuli.presentation import are_in_time
from mlem_core.stimuli.stimulus_set import StimulusSet, group_name
from mlem_core.stimuli.table_warnings import MOST_ROWS, Lint, Severity, StimulusFinding

# Distances of two features that correlate above this are named (Salle et al. 2024, figure S5, has
# the table; the bound is ours).
CORRELATED = 0.3
# A value of a nominal feature that fewer stimuli have (or fewer than one in a hundred) is rare.
RARE = 10
# Regression wants 10 to 20 observations a weight. Pairs of the same stimuli are not independent, so
# we count stimuli, and ask for the larger number.
PER_WEIGHT = 20
GROUPS_A_FOLD = 5
BLOCKS_A_FOLD = 2
# Of more features no two are looked at together for others that follow from both.
MOST_COMBINED = 64
# Where a feature follows from others, so many stimuli on average share the values of these.
AGREEING = 4
DEFAULT = AnalysisSpec()


def lint(stimuli: StimulusSet, spec: AnalysisSpec = DEFAULT) -> Lint:
    """Look at stimuli as a careful colleague would before a run.

    What needs all pairs of stimuli is looked at in those of a sample where there are many, see
    `mlem_core.analysis.planning.sampled_rows`.

    Parameters
    ----------
    stimuli : with the features that are to be used (`StimulusSet.select`)
    spec : its folds, seed, missing values, interactions, and features that are resolved by value

    Raises InputError: an unknown policy for missing values; features that cannot be resolved by
    value, or that make too many columns.
    """
    n, folds, seed = len(stimuli), spec.folds, spec.seed
    columns = resolved_columns(stimuli, () if spec.values == AUTO else spec.values)
    check_columns(columns, spec)
    resolved = [column.name for column in columns if column.names]
    levels = {feature.name: constant_unit(stimuli, feature.name) for feature in stimuli.features}
    rows = sampled_rows(n, seed)
    refused = ""
    try:
        fold_of = stimulus_folds(stimuli, spec.folds_over, folds, seed)
        folds = number_of_folds(fold_of)
    except InputError as error:
        refused, fold_of = str(error), np.arange(n) % min(max(folds, 2), n)
    sample = feature_columns(stimuli.take(rows), resolved=resolved)
    interactions = spec.interactions and not resolved
    of_pairs = PairColumns.from_features(sample, spec.missing, interactions)
    moments = moments_of_columns(of_pairs, fold_of[rows])
    findings = [*_duplicates(stimuli), *_missing(columns, spec.missing), *_values(columns, folds)]
    findings += _size(stimuli, folds, of_pairs)
    if refused:
        findings.append(StimulusFinding("problem", "folds", sentence_case(refused)))
    else:
        findings += _tested(stimuli, fold_of, folds, spec.folds_over)
    findings += _levels(levels)
    about_pairs = [*feature_findings(moments), *_determined(columns, rows)]
    if len(rows) < n:
        where = f" (seen in a seeded sample of {len(rows):,} stimuli)."
        about_pairs = [
            replace(finding, sentence=finding.sentence.removesuffix(".") + where)
            for finding in about_pairs
        ]
    findings += about_pairs
    names = list(of_pairs.features)
    correlations = pd.DataFrame(correlations_of_features(moments), index=names, columns=names)
    of = "all pairs of stimuli" if len(rows) == n else f"the pairs of {len(rows):,} of the stimuli"
    findings += _correlated(correlations, findings, of)
    findings.sort(key=lambda finding: get_args(Severity).index(finding.severity))
    return Lint(findings, correlations, len(rows), len(of_pairs))


def _levels(of_feature: Mapping[str, str]) -> Iterator[StimulusFinding]:
    """The units that features are constant on; none where on single stimuli only."""
    parts = [
        f"{listed([name for name, own in of_feature.items() if own == level])} ({level})"
        for level in dict.fromkeys(of_feature.values())
        if level != STIMULUS
    ]
    if parts:
        yield StimulusFinding(
            "note",
            "levels",
            f"Constant on units, whose labels are permuted for chance: {'; '.join(parts)}.",
        )


# Distances that vary by less than this part of 1 are all the same, but for rounding.
VARIES = 1e-12
# Two features whose distances correlate by less than this from 1 distinguish the same pairs.
SAME = 1e-9


def feature_findings(moments: PairMoments) -> Iterator[StimulusFinding]:
    """Findings about the features' own values that make every fit uncertain.

    A feature that is the same everywhere in a fold's training stimuli, two features that
    distinguish the same pairs, weights that depend on each other.
    """
    columns, features = moments.columns, moments.columns.features
    plain = plain_columns(columns)
    training = [moments.within(moments.training(fold)) for fold in range(moments.n_folds)]
    training = [of_fold for of_fold in training if of_fold.n_pairs > 0]
    if not training:
        return  # so few stimuli that no fold leaves a pair to train on
    spreads = [np.diag(plain @ own.gram @ plain.T) / own.n_pairs for own in training]
    for feature, name in enumerate(features):
        folds = [fold for fold, spread in enumerate(spreads) if spread[feature] <= VARIES]
        where = "pairs of stimuli; its weight and importances are 0"
        if somewhere := len(folds) < len(training):
            named = ", ".join(map(str, folds))
            where = f"pairs that are left to train on without fold {named}; its weight there is 0"
        if folds:
            yield StimulusFinding(
                "caution" if somewhere else "problem",
                "constant",
                f"The feature {name!r} has the same distance in all {where}.",
                (name,),
            )
    correlations = correlations_of_features(moments)
    copies = []
    for pair in itertools.combinations(range(len(features)), 2):
        if correlations[pair] >= 1 - SAME:
            copies.append(pair)
            first, second = (features[feature] for feature in pair)
            yield StimulusFinding(
                "problem",
                "copies",
                f"The features {first!r} and {second!r} divide the stimuli in the same "
                "way, so their separate weights mean nothing; leave one of them out.",
                (first, second),
            )
    # The weights of values are drawn towards one a feature, so that there is always one best fit.
    parts = np.eye(len(columns)) if columns.interactions else plain
    gram = moments.within(np.ones(moments.n_blocks, dtype=bool)).gram
    covariance = parts @ gram @ parts.T
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    varying = spread > np.sqrt(VARIES * max(moments.n_pairs, 1))
    scaled = covariance[np.ix_(varying, varying)] / np.outer(spread[varying], spread[varying])
    rank = int(np.linalg.matrix_rank(scaled, tol=SAME * len(scaled), hermitian=True))
    if rank < len(scaled) - len(copies):
        yield StimulusFinding(
            "problem",
            "weights",
            f"The model has {len(parts)} weights, but the distances of some features follow from "
            f"those of others: only {rank} are independent. Other weights would fit as well: "
            f"choose fewer features{' or no interactions' if columns.interactions else ''}.",
            features,
        )


def _determined(columns: Sequence[FeatureColumn], rows: IntArray) -> Iterator[StimulusFinding]:
    """Features whose value follows in some rows from those of one or two others; not copies.

    Of more than `MOST_COMBINED` features, from those of one.
    """
    known = [column for column in columns if column.kind in ("ordered", "nominal")]
    if not known:
        return
    codes = np.stack(
        [pd.factorize(column.values[rows], use_na_sentinel=False)[0] for column in known]
    ).astype(np.int64)
    found: dict[int, tuple[int, ...]] = {}
    for size in (1, 2) if len(known) <= MOST_COMBINED else (1,):
        for others in itertools.combinations(range(len(known)), size):
            first, last = codes[others[0]], codes[others[-1]]
            cells = pd.factorize(first * (last.max() + 1) + last)[0]
            for feature in _following(codes, cells):
                if feature not in others:
                    found.setdefault(feature, others)
    for feature in sorted(found):
        name, given = known[feature].name, tuple(known[other].name for other in found[feature])
        yield StimulusFinding(
            "caution",
            "determined",
            f"The feature {name!r} follows from {listed([*map(repr, given)])}: stimuli "
            f"that agree on {'it' if len(given) == 1 else 'both'} agree on {name!r}. So one "
            "may be credited with what another explains. Read their importances together, or "
            f"leave {name!r} out.",
            (name, *given),
        )


def _following(codes: IntArray, cells: IntArray) -> Iterator[int]:
    """Features whose values (n_features, n_stimuli) are the same inside each cell (n_stimuli,).

    Values that would be so by chance are left out.
    """
    n_cells, n_stimuli = int(cells.max()) + 1, len(cells)
    if n_cells > n_stimuli / AGREEING:
        return
    n_values = codes.max(axis=1) + 1
    candidates = np.flatnonzero((n_values > 1) & (n_values < n_cells))
    member = np.empty(n_cells, dtype=np.int64)
    member[cells] = np.arange(n_stimuli)
    of_candidates = codes[candidates]
    same = (of_candidates == of_candidates[:, member[cells]]).all(axis=1)
    is_shared = np.bincount(cells)[cells] > 1
    for feature in candidates[same]:
        # Of each value half of the stimuli at least have others of the same cell beside them.
        shared = np.bincount(codes[feature], is_shared)
        if (2 * shared >= np.bincount(codes[feature])).all():
            yield int(feature)


def _correlated(
    table: pd.DataFrame, known: Sequence[StimulusFinding], of: str
) -> list[StimulusFinding]:
    copies = {finding.features for finding in known if finding.kind == "copies"}
    square, names_of = table.to_numpy(), [str(name) for name in table.index]
    high = np.triu(np.abs(np.nan_to_num(square)) > CORRELATED, 1)
    pairs = [
        (float(square[first, second]), (names_of[first], names_of[second]))
        for first, second in zip(*np.nonzero(high), strict=True)
    ]
    return [
        StimulusFinding(
            "caution",
            "correlated",
            f"The distances of {names[0]!r} and {names[1]!r} correlate at "
            f"{fraction(value)} over {of}. So one may be credited with what the other explains. "
            "Read the two importances together, or choose stimuli in which the two vary "
            "independently.",
            names,
        )
        for value, names in sorted(pairs, key=lambda pair: -abs(pair[0]))
        if names not in copies
    ]


def _duplicates(stimuli: StimulusSet) -> Iterator[StimulusFinding]:
    table = pd.DataFrame({"sentence": pd.factorize(np.array(stimuli.sentences, object))[0]})
    if stimuli.level == "word":
        table["word"] = stimuli.word_index
    again = np.flatnonzero(table.duplicated(keep="first").to_numpy())
    if not len(again):
        return
    same = (table == table.iloc[again[0]]).all(axis=1).to_numpy()
    what = "word of the same sentence" if stimuli.level == "word" else stimuli.level
    rows = _rows(again)
    yield StimulusFinding(
        "caution",
        "duplicates",
        f"{many(len(again), 'row')} {'repeats' if len(again) == 1 else 'repeat'} a {what} that an "
        f"earlier row has (row {rows[0]} is row {int(np.flatnonzero(same)[0]) + 1} again). "
        "Models represent both in the same way, so such pairs mislead: keep one row of each.",
        rows=rows,
    )


def _missing(columns: Sequence[FeatureColumn], policy: str) -> Iterator[StimulusFinding]:
    n = len(columns[0].values)
    # Of a feature that is resolved, a missing value is a value whatever the policy.
    groups: dict[tuple[bool, bytes], tuple[NDArray[np.bool_], list[str]]] = {}
    for column in columns:
        absent = pd.isna(column.values)
        if absent.any():
            key = policy == "level" or bool(column.names), absent.tobytes()
            groups.setdefault(key, (absent, []))[1].append(column.name)
    for (as_level, _), (absent, names) in groups.items():
        n_absent = int(absent.sum())
        without = 1 - (n - n_absent) * (n - n_absent - 1) / (n * (n - 1))
        who, it = f"The feature {names[0]!r} has no value", "it"
        if len(names) > 1:
            several = listed([*map(repr, names)], most=5)
            who, it = f"The features {several} have no value, always together,", "them"
        left = f"{percent(1 - without) if without < 0.995 else 'under 1 %'} of pairs"
        means = f"only {left} say anything about {it}"
        if as_level:
            means = "having none counts as a value, so that an importance is partly about which "
            means += "stimuli have a feature at all"
        yield StimulusFinding(
            "caution" if n_absent > n / 2 else "note",
            "missing",
            f"{who} in {n_absent:,} of {n:,} stimuli ({percent(n_absent / n)}): {means}; check "
            "that these cells are meant to be empty.",
            tuple(names),
            _rows(np.flatnonzero(absent)),
            detail=f"{percent(n_absent / n)} empty"
            if as_level
            else f"{percent(1 - without)} of pairs",
        )


def _values(columns: Sequence[FeatureColumn], folds: int) -> Iterator[StimulusFinding]:
    """Rare values and identifiers; ordered features whose range a few stimuli stretch."""
    n = len(columns[0].values)
    for feature in columns:
        values = pd.Series(feature.values)
        if feature.kind == "ordered":
            present = values.dropna()
            low, middle_low, middle_high, high = present.quantile([0, 0.01, 0.99, 1])
            if len(present) >= 100 and 10 * (middle_high - middle_low) < high - low:
                far = values.notna() & ((values < middle_low) | (values > middle_high))
                yield StimulusFinding(
                    "caution",
                    "range",
                    f"The feature {feature.name!r} runs from {low:g} to {high:g}, but 98 % "
                    f"of its values lie between {middle_low:g} and {middle_high:g}. Scaled by the "
                    "range, nearly all its distances are close to 0, and its weight rests on few "
                    "stimuli. Look at the extreme values, or use their logarithm.",
                    (feature.name,),
                    _rows(np.flatnonzero(far)),
                )
        if feature.kind != "nominal":
            continue
        counts = values.value_counts()
        if len(counts) > max(20, 0.5 * counts.sum()):
            yield StimulusFinding(
                "problem",
                "identifier",
                f"The feature {feature.name!r} has {len(counts):,} different values in "
                f"{int(counts.sum()):,} stimuli, so nearly every two differ in it. "
                "If it names the stimuli, ignore it; if it is a number, make it numeric.",
                (feature.name,),
            )
            continue
        rare = counts[counts < max(folds, min(RARE, n / 100))]
        if not len(rare):
            continue
        counted = listed([f"{value} ({count})" for value, count in rare.items()], most=5)
        single = len(rare) == 1
        yield StimulusFinding(
            "caution",
            "rare",
            f"{'A value' if single else f'{len(rare)} values'} of the feature "
            f"{feature.name!r} "
            f"{'is' if single else 'are'} rare among {n:,} stimuli: {counted}. Some folds hold "
            f"hardly any: merge {'it' if single else 'them'} with others or add stimuli.",
            (feature.name,),
            _rows(np.flatnonzero(values.isin(rare.index))),
        )


def _size(stimuli: StimulusSet, folds: int, columns: PairColumns) -> Iterator[StimulusFinding]:
    n, n_weights = len(stimuli), len(columns)
    if n < PER_WEIGHT * n_weights:
        yield StimulusFinding(
            "caution",
            "few",
            f"There are {n:,} stimuli for {n_weights} weights; a rule of thumb is "
            f"{PER_WEIGHT} stimuli a weight (here {PER_WEIGHT * n_weights:,}). With fewer, weights "
            "change from fold to fold: add stimuli or choose fewer features"
            f"{' or no interactions' if columns.interactions else ''}"
            f"{', or code fewer features by value' if columns.by_value else ''}.",
        )
    sizes = np.bincount(stimuli.groups)
    of_text = stimuli.level != "stimulus"
    what = (
        "sentence_id" if "sentence_id" in stimuli.table else "sentence" if of_text else "stimulus"
    )
    in_groups, a_fold = f"of {len(sizes)} different values of {what!r}", GROUPS_A_FOLD
    if are_in_time(stimuli):
        # Their blocks are long, since neighbours are alike.
        what = group_name(stimuli)
        in_groups, a_fold = f"in {many(len(sizes), what)}", BLOCKS_A_FOLD
    if folds <= len(sizes) < a_fold * folds:
        yield StimulusFinding(
            "caution",
            "folds",
            f"The stimuli are {in_groups}, which stay together, in {folds} folds. A rule of thumb "
            f"is {a_fold} a fold (here {a_fold * folds}). With fewer, scores of single folds "
            "differ by chance: add "
            f"{plural(group_name(stimuli))} or choose fewer folds.",
        )
    if len(sizes) >= folds and sizes.max() > 2 * n / folds:
        largest = np.flatnonzero(stimuli.groups == sizes.argmax())
        yield StimulusFinding(
            "caution",
            "folds",
            f"{sizes.max():,} of the {n:,} stimuli have the same {what!r} (row {largest[0] + 1} is "
            "the first) and stay together. So one fold is far larger than the others and is "
            "trained on few: divide them into smaller groups.",
            rows=_rows(largest),
        )


def _tested(
    stimuli: StimulusSet, fold_of: IntArray, n_folds: int, over: str
) -> Iterator[StimulusFinding]:
    if stimuli.items is None or over == "sentences":
        return
    sizes, item = tested(fold_of, n_folds), stimuli.item_name
    parts = [stimuli.items[fold_of == fold] for fold in range(n_folds)]
    of_one = sum(_pairs(np.bincount(items_of_fold)) for items_of_fold in parts) / _pairs(sizes)
    share_of_all = _pairs(np.bincount(stimuli.items)) / _pairs(np.array([len(stimuli)]))
    some = (
        f"Folds over both test {sizes.sum():,} of the {len(stimuli):,} stimuli, {sizes.min():,} to "
        f"{sizes.max():,} a fold, and the others help to train. "
    )
    yield StimulusFinding(
        "note",
        "folds",
        f"{some if over == 'both' else ''}Of the pairs that folds over {over} test, "
        f"{percent(of_one, 1)} are of one {item}, of all pairs {percent(share_of_all, 1)}. They "
        f"agree in every feature of the {item}: do not compare held-out scores with those "
        f"of folds over {plural(group_name(stimuli))}.",
    )


def _pairs(sizes: IntArray) -> float:
    """Number of pairs inside groups of these sizes."""
    return float((sizes * (sizes - 1) // 2).sum())


def _rows(positions: IntArray) -> tuple[int, ...]:
    return tuple(int(position) + 1 for position in positions[:MOST_ROWS])
