"""What tests and intervals of the second level hold, and which properties of systems it names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist
from scipy.stats import rankdata

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extensions.systems import property_tests
from mlem_core.extensions.systems.group_spec import Member
from mlem_core.extensions.systems.halves import (
    DRAWS,
    cross_validated,
    profile_squares,
    relation_squares,
)
from mlem_core.extensions.systems.model_groups import Members, Squares
from mlem_core.extensions.systems.properties import Properties
from mlem_core.extensions.systems.second_level import holm, second_level
from mlem_core.inference.intervals import SIGNIFICANT
from mlem_core.pairs.resampling_units import draw_halves
from validation.work import Row, Task

# Systems and families; of families date and architecture, the others of each system for itself.
DESIGNS = ((8, 4), (15, 5), (15, 10), (43, 10))
NUMBERS, CLASSES = ("date", "size"), ("objective", "architecture", "family")
TEN = (*NUMBERS, *CLASSES, "tokens", "width", "activation", "attention", "language")
BY_MODELS, NAMED = "date, by models", "any of these, corrected"
UNKNOWN = "family, not in the table,"
# Share of the variance of dates between families, and where they are confounded.
SHARED, CONFOUNDED = 0.6, 0.8
# Spread of what a system adds to its distances, of pairs, and of pairs of families.
OWN, PAIRS, FAMILIES = 0.1, 0.1, 0.2
# What each property adds to squared distances from end to end; with "family" pairs of families too.
NULLS: dict[str, dict[str, float]] = {
    "nothing": {},
    "family": {"family": 0.3},
    "size": {"size": 0.6},
    UNKNOWN: {"family": 0.3},
}
MIXED = {"size": 0.6, "objective": 0.2, "family": 0.2}
CARRIER = {"size": 0.6}
CONFOUNDS: dict[str, dict[str, float]] = {"date": {"date": 0.6}, "family": {"family": 0.3}}
PERMUTATIONS = 99
TESTS, TESTS_PART, PART, QUICK = 400, 100, 10, 1
# Reliability: layers, features and stimuli of a system, dimensions of the states that all share;
# the noise of the smallest system, and how many times that of the largest it is.
LAYERS, FEATURES, STIMULI, DIMENSIONS = 4, 6, 120, 6
NOISY = ((8, 4), (15, 5), (43, 10))
RATIOS = {"profiles": (12,), "rsa": (5, 12)}
NOISE = {"profiles": 0.2, "rsa": 1.0}
# What an objective adds to profiles, and to states.
ADDED = {"nothing": 0.0, "objective": 1.0}
EFFECT = {"profiles": 0.03, "rsa": 0.3}
CROSSED, ALL = "cross-validated", "over all stimuli"
# Data sets of each design of the other parts; of systems, families and what sets it apart.
COVERED = {
    (8, 4, "systems"): 100,
    (15, 5, "systems"): 100,
    (43, 10, "systems"): 40,
    (15, 10, "families"): 100,
    (43, 10, "families"): 40,
}
POWER = {(8, 4, "ten"): 20, (15, 5, "ten"): 20, (43, 10, "ten"): 10}
TOGETHER = {(15, 4, "distances"): 10, (15, 5, "shared"): 10}


def symmetric(rng: np.random.Generator, n: int) -> FloatArray:
    """(n, n) normal numbers."""
    values = rng.standard_normal((n, n))
    symmetrical: FloatArray = (values + values.T) / 2
    return symmetrical


def systems(
    rng: np.random.Generator, n: int, n_families: int, kind: str
) -> tuple[dict[str, property_tests.Values], IntArray]:
    """Properties of systems, and the family of each.

    Parameters
    ----------
    kind : "systems" draws systems of families that stay; "distances" has two large families, an
        old and a new one; else families of like size
    """
    family = rng.integers(0, n_families, n) if kind == "systems" else np.arange(n) % n_families
    date, share = rng.random(n_families), CONFOUNDED if kind == "shared" else SHARED
    if kind == "distances":
        family = np.searchsorted([0.5, 0.85, 0.95], (np.arange(n) + 0.5) / n)
        date, share = np.array([0.0, 1.0, 1.0, 1.0]), 0.94
    values: dict[str, property_tests.Values] = {
        "date": np.sqrt(share) * date[family] + np.sqrt(1 - share) * rng.random(n),
        "size": rng.random(n),
        "objective": _labels(rng.integers(0, 3, n)),
        "architecture": _labels(rng.permutation(np.arange(n_families) % 2)[family]),
        "family": _labels(family),
    }
    if kind in ("distances", "shared"):
        del values["architecture"]
    if kind == "ten":
        values |= {name: rng.random(n) for name in TEN[5:7]}
        values |= {name: _labels(rng.integers(0, 3, n)) for name in TEN[7:]}
    return values, family


def _labels(codes: IntArray) -> list[str]:
    return [f"{code}" for code in codes]


def squared_distances(
    rng: np.random.Generator,
    properties: Properties,
    effects: Mapping[str, float],
    family: IntArray | None = None,
) -> FloatArray:
    """(n_systems, n_systems) squared distances: of properties, of each system, of pairs.

    Parameters
    ----------
    family : each two families have a distance of their own
    """
    apart = dict(zip(properties.values, properties.distances(), strict=True))
    n = len(next(iter(apart.values())))
    own = rng.standard_normal(n) * OWN
    squares = own[:, None] + own + PAIRS * np.sqrt(2) * symmetric(rng, n)
    squares += sum(
        (effect * apart[name] ** 2 for name, effect in effects.items()), np.zeros((n, n))
    )
    if family is not None:
        pairs = FAMILIES * symmetric(rng, int(family.max()) + 1)
        squares += pairs[np.ix_(family, family)]
    np.fill_diagonal(squares, 0)
    return np.asarray(squares)


def profiles_in_halves(
    rng: np.random.Generator, noise: FloatArray, objective: IntArray, effect: float
) -> tuple[FloatArray, FloatArray]:
    """Importances of all systems, equal but for the objective and noise.

    Parameters
    ----------
    noise : (n_systems,) standard deviation over all stimuli

    Returns (n_draws, 2, n_layers, n_features) in halves, and (n_layers, n_features) of all stimuli.
    """
    blocks, shape = 8, (LAYERS, FEATURES)
    profile = 0.2 * rng.random(shape) + effect * rng.standard_normal((3, *shape))[objective]
    each = noise[:, None, None] * np.sqrt(blocks) * rng.standard_normal((blocks, *profile.shape))
    each = (profile + each).reshape(blocks, -1, FEATURES)
    drawn = [rng.permutation(blocks).reshape(2, -1) for _ in range(DRAWS)]
    return np.stack([each[halves].mean(axis=1) for halves in drawn]), each.mean(axis=0)


def rsa_in_halves(
    rng: np.random.Generator, noise: FloatArray, objective: IntArray, effect: float
) -> tuple[FloatArray, FloatArray]:
    """RSA of all systems (a layer each), whose states differ by the objective and noise.

    Returns (n_draws, 2, n_systems, n_systems) in halves, and (n_systems, n_systems) of all stimuli.
    """
    shape = (STIMULI, DIMENSIONS)
    states = rng.standard_normal(shape) + effect * rng.standard_normal((3, *shape))[objective]
    states = states + noise[:, None, None] * rng.standard_normal((len(noise), *shape))

    def rsa(stimuli: IntArray) -> FloatArray:
        return np.corrcoef([rankdata(pdist(system[stimuli])) for system in states])

    every, folds = np.arange(STIMULI), np.zeros(STIMULI, dtype=np.int64)
    halves = [[rsa(half) for half in draw_halves(every, folds, STIMULI, rng)] for _ in range(DRAWS)]
    return np.array(halves), rsa(every)


def noisy_rejections(
    measure: str, truth: str, ratio: float, n: int, n_families: int, first: int, n_sets: int
) -> list[Row]:
    """How often each property is found where small systems are measured less well."""
    n_layers = LAYERS if measure == "profiles" else 1
    names = [f"s{at}" for at in range(n)]
    members = Members.from_table(
        [Member(name, name) for name in names],
        [(name, layer) for name in names for layer in range(n_layers)],
    )
    rows = list[tuple[str, str, float]]()
    for seed in range(first, first + n_sets):
        rng = np.random.default_rng([n, n_families, len(measure + truth), int(ratio), seed])
        values, _ = systems(rng, n, n_families, "whole")
        properties = Properties(values)
        noise = NOISE[measure] * np.exp(-np.log(ratio) * np.asarray(values["size"], float))
        make = profiles_in_halves if measure == "profiles" else rsa_in_halves
        objective = np.array(values["objective"], dtype=np.int64)
        halves, total = make(rng, noise, objective, ADDED[truth] * EFFECT[measure])
        square = profile_squares if measure == "profiles" else relation_squares
        crossed = cross_validated(partial(square, members=members), halves, total, None).values
        plain = profile_squares(total, total, members) if measure == "profiles" else 1 - total
        for kind, targets in ((CROSSED, crossed), (ALL, plain)):
            tests, _ = property_tests.permutation_tests(
                -targets, properties.factors, n_permutations=PERMUTATIONS, seed=seed
            )
            known = {test.name: test.p for test in tests}
            corrected = [p for name, p in holm(known).items() if name != truth]
            rows += [(kind, NAMED, min(corrected, default=1.0))]
            rows += [(kind, name, p) for name, p in known.items()]
    return _counted(
        pd.DataFrame(rows, columns=["kind", "property", "p"]),
        {"study": f"noise, {measure}", "truth": truth, "ratio": ratio},
        {"systems": n, "families": n_families, "sets": n_sets},
    )


def _counted(table: pd.DataFrame, *known: Mapping[str, str | float]) -> list[Row]:
    """Rows of how often each property is tested and found, by the columns of a table but p."""
    table = table.assign(found=table["p"] <= SIGNIFICANT, tested=table["p"].notna())
    by = [name for name in table if name not in ("p", "found", "tested")]
    counts = table.groupby(by, sort=False)[["tested", "found"]].sum().reset_index()
    for columns in known:
        counts = counts.assign(**columns)
    return list(counts.to_dict("records"))


def rejections(truth: str, n: int, n_families: int, first: int, n_sets: int) -> list[Row]:
    """How often the test finds each property, of those that do not matter, in some data sets."""
    effects, found = NULLS[truth], list[tuple[str, float]]()
    for seed in range(first, first + n_sets):
        rng = np.random.default_rng([n, n_families, list(NULLS).index(truth), seed])
        values, family = systems(rng, n, n_families, "whole")
        properties = Properties(values)
        apart = squared_distances(rng, properties, effects, family if "family" in effects else None)
        if truth == UNKNOWN:
            del values["family"]
        tests, _ = property_tests.permutation_tests(
            -apart, values, n_permutations=PERMUTATIONS, seed=seed
        )
        known = {test.name: test.p for test in tests}
        smallest = [p for name, p in holm(known).items() if name not in effects]
        found += [(NAMED, min(smallest, default=1.0)), *known.items()]
        if truth == "family":
            with patch.object(property_tests, "CLUSTERED", np.inf):
                tests, _ = property_tests.permutation_tests(
                    -apart, values, n_permutations=PERMUTATIONS, seed=seed
                )
            found += [(BY_MODELS, test.p) for test in tests if test.name == "date"]
    table = pd.DataFrame(found, columns=["property", "p"])
    table = table[~table["property"].isin(list(effects))]
    known = {"study": "level", "truth": truth, "systems": n, "families": n_families}
    return _counted(table, known, {"sets": n_sets})


def importances(
    study: str,
    truth: str,
    effects: Mapping[str, float],
    design: tuple[int, int, str],
    first: int,
    n_sets: int,
) -> list[Row]:
    """The importances of some data sets, their intervals and p, and whether notes warn."""
    n, n_families, kind = design
    rows = list[Row]()
    for seed in range(first, first + n_sets):
        rng = np.random.default_rng([*map(ord, study + truth + kind), n, n_families, seed])
        values, family = systems(rng, n, n_families, kind)
        properties = Properties(values)
        whole = kind == "families"
        apart = squared_distances(rng, properties, effects, family if whole else None)
        families = values["family"] if whole else ()
        found = second_level({"d": Squares(apart)}, properties, families=families, seed=seed)
        r = properties.correlations().set_index(["property", "other"])["r"]
        known = {
            "study": study,
            "truth": truth,
            "systems": n,
            "families": n_families,
            "kind": kind,
            "seed": seed,
            "rho": found.scores["rho"].mean(),
            "r": r["date", "family"],
            "warned": any("date with family" in note for note in found.notes),
        }
        kept = found.importances.drop(columns="measure")
        rows += [known | row for row in kept.to_dict("records")]
    return rows


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    found = [
        Task(
            f"noise, {measure}, {truth}, ratio {ratio}, {n} in {f}, from {first}",
            noisy_rejections,
            (measure, truth, ratio, n, f, first, size),
        )
        for size, most in [(QUICK, QUICK) if quick else (TESTS_PART, TESTS)]
        for first in range(0, most, size)
        for measure in NOISE
        for truth in ADDED
        for ratio in RATIOS[measure]
        if truth == "nothing" or ratio == RATIOS[measure][0]
        for n, f in NOISY
    ]
    found += [
        Task(f"level, {truth}, {n} in {f}, from {first}", rejections, (truth, n, f, first, size))
        for size, most in [(QUICK, QUICK) if quick else (TESTS_PART, TESTS)]
        for first in range(0, most, size)
        for truth in NULLS
        for n, f in DESIGNS
    ]
    for study, truth, effects, designs in (
        ("coverage", "mixed", MIXED, COVERED),
        ("power", "size", CARRIER, POWER),
        *(("confounded", truth, effects, TOGETHER) for truth, effects in CONFOUNDS.items()),
    ):
        found += [
            Task(
                f"{study}, {truth}, {design[0]} in {design[1]} {design[2]}, from {first}",
                importances,
                (study, truth, effects, design, first, size),
            )
            for design, n in designs.items()
            for size, most in [(QUICK, QUICK) if quick else (PART, n)]
            for first in range(0, most, size)
        ]
    # The first data sets of everything come first.
    return sorted(found, key=lambda task: task.arguments[-2] // TESTS_PART)


def of_second_level(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Levels of the test, coverage of the intervals, power, and confounded properties."""
    names = [NAMED, "date", BY_MODELS, "size", *CLASSES]
    counted = rows[rows["property"].isin(names) & rows["sets"].notna()].copy()
    counted["design"] = _designs(counted)
    levels = {
        f"level where {truth} matters": _shares(table, ["design"], names)
        for truth, table in counted[counted["study"] == "level"].groupby("truth", sort=False)
    }
    counted["noise"] = counted["ratio"].map("{:.0f}:1".format)
    by = ["truth", "design", "noise", "kind"]
    noisy = {
        f"noise of small systems, {measure}": _shares(
            counted[counted["study"] == f"noise, {measure}"], by, names
        )
        for measure in NOISE
    }
    own = rows[rows["sets"].isna()].copy()
    own["named"] = (own["lower"] > 0) & (own["p"] < SIGNIFICANT)
    own["design"] = _designs(own) + ", " + own["kind"]
    studies = {
        "coverage": ("coverage of the second level", _coverage),
        "power": ("power of the second level", _power),
        "confounded": ("confounded properties", _confounded),
    }
    tables = {
        title: table_of(own[own["study"] == study])
        for study, (title, table_of) in studies.items()
        if (own["study"] == study).any()
    }
    return noisy | levels | tables


def _shares(table: pd.DataFrame, by: list[str], names: list[str]) -> pd.DataFrame:
    """How often each property is found where it is tested, a row for each of what `by` names."""
    counts = ["found", "tested", "sets"]
    sums = table.groupby([*by, "property"], sort=False)[counts].sum().reset_index()
    share = (sums["found"] / sums["tested"].where(sums["tested"] > 0)).map("{:.1%}".format)
    some = (sums["tested"] / sums["sets"]).map(" (of {:.0%})".format)
    sums["cell"] = share.where(sums["tested"] > 0, "no test") + some.where(
        sums["tested"].between(1, sums["sets"] - 1), ""
    )
    wide = sums.pivot(index=by, columns="property", values="cell")
    order = pd.MultiIndex.from_frame(sums[by].drop_duplicates())
    rows = order if len(by) > 1 else order.get_level_values(0)
    wide = wide.reindex(index=rows, columns=[name for name in names if name in wide])
    return (wide.reset_index().set_index(by[0]) if len(by) > 1 else wide).rename_axis(columns=None)


def _designs(rows: pd.DataFrame) -> pd.Series:
    return rows["systems"].map("{:.0f} systems".format) + rows["families"].map(
        " in {:.0f} families".format
    )


def _coverage(own: pd.DataFrame) -> pd.DataFrame:
    by = own.groupby(["design", "property"], sort=False)
    truth = by["importance"].transform("mean")
    own = own.assign(
        held=own["lower"].le(truth) & truth.le(own["upper"]),
        above=own["lower"] > truth,
        half=(own["upper"] - own["lower"]) / 2,
    )
    cells = own.groupby(["design", "property"], sort=False).agg(
        held=("held", "mean"),
        named=("named", "mean"),
        half=("half", "mean"),
        spread=("importance", "std"),
        mean=("importance", "mean"),
    )
    text = [
        f"{row.held:.1%} ({row.half / (1.96 * row.spread):.1f}), {row.mean:.2f}, {row.named:.0%}"
        for row in cells.itertuples()
    ]
    table = pd.Series(text, cells.index).unstack("property")[[*NUMBERS, *CLASSES]]
    over = own.groupby("design", sort=False)
    table.insert(0, "lower bound above the truth", over["above"].mean().map("{:.1%}".format))
    table.insert(0, "data sets", over["seed"].nunique())
    return table.reindex(own["design"].unique()).rename_axis(columns=None)


def _power(own: pd.DataFrame) -> pd.DataFrame:
    found = []
    for (design, _), one in own.groupby(["design", "seed"], sort=False):
        at = one.set_index("property")
        carrier, others = at.loc["size"], at.drop(index="size")
        found.append(
            (
                design,
                carrier["rho"],
                carrier["importance"],
                carrier["lower"] > 0,
                carrier["p"] < SIGNIFICANT,
                carrier["named"],
                at["importance"].idxmax() == "size",
                others["named"].any(),
            )
        )
    names = [
        "design",
        "held-out ρ",
        "importance",
        "lower > 0",
        "p < .05",
        "named",
        "largest",
        "another named",
    ]
    table = pd.DataFrame(found, columns=names).groupby("design", sort=False)
    means = table.mean()
    return pd.DataFrame(
        {
            "data sets": table.size(),
            **{name: means[name].map("{:.2f}".format) for name in names[1:3]},
            **{name: means[name].map("{:.0%}".format) for name in names[3:]},
        }
    ).rename_axis(columns=None)


def _confounded(own: pd.DataFrame) -> pd.DataFrame:
    own = own.assign(
        design=own["design"] + ": " + own["truth"] + " matters", tested=own["p"].notna()
    )
    by = own.groupby("design", sort=False)
    table = pd.DataFrame(
        {
            "data sets": by["seed"].nunique(),
            "correlation": by["r"].mean().map("{:.2f}".format),
            "warned": by["warned"].mean().map("{:.0%}".format),
        }
    )
    for name in ("date", "family"):
        one = own[own["property"] == name].groupby("design", sort=False)
        table[f"{name}: importance"] = one["importance"].mean().map("{:.2f}".format)
        table[f"{name}: lower > 0"] = (
            one["lower"].agg(lambda v: (v > 0).mean()).map("{:.0%}".format)
        )
        table[f"{name}: tested"] = one["tested"].mean().map("{:.0%}".format)
        table[f"{name}: named"] = one["named"].mean().map("{:.0%}".format)
    others = (
        own[~own["property"].isin(["date", "family"])].groupby(["design", "seed"])["named"].any()
    )
    table["another named"] = others.groupby("design").mean().map("{:.0%}".format)
    return table.rename_axis(columns=None)
