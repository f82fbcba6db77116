"""What tests and intervals of the second level hold, and which properties of systems it names."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.groups import property_tests
from mlem_core.groups.members import Measured
from mlem_core.groups.properties import Properties
from mlem_core.groups.second_level import holm, second_level
from mlem_core.inference.intervals import SIGNIFICANT
from validation.work import Row, Task

# Systems and families; of families date and architecture, the others of each system for itself.
DESIGNS = ((8, 4), (8, 5), (15, 4), (15, 5), (15, 10), (43, 4), (43, 5), (43, 10))
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
PERMUTATIONS = 199
TESTS, TESTS_PART, PART, QUICK = 300, 100, 10, 1
# Data sets of each design of the other parts; of systems, families and what sets it apart.
COVERED = {
    (8, 4, "systems"): 100,
    (15, 5, "systems"): 100,
    (43, 5, "systems"): 40,
    (15, 5, "skewed"): 50,
    (15, 5, "families"): 50,
    (15, 10, "families"): 50,
    (43, 10, "families"): 30,
}
POWER = {(8, 4, "ten"): 40, (15, 5, "ten"): 40, (43, 10, "ten"): 20}
TOGETHER = {
    (15, 4, "distances"): 30,
    (43, 4, "distances"): 10,
    (15, 5, "shared"): 30,
    (43, 10, "shared"): 10,
}


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
    kind : "systems" draws systems of families that stay, "skewed" sizes of long tails too;
        "distances" has two large families, an old and a new one; else families of like size
    """
    family = (
        rng.integers(0, n_families, n)
        if kind in ("systems", "skewed")
        else np.arange(n) % n_families
    )
    date, share = rng.random(n_families), CONFOUNDED if kind == "shared" else SHARED
    if kind == "distances":
        family = np.searchsorted([0.5, 0.85, 0.95], (np.arange(n) + 0.5) / n)
        date, share = np.array([0.0, 1.0, 1.0, 1.0]), 0.94
    values: dict[str, property_tests.Values] = {
        "date": np.sqrt(share) * date[family] + np.sqrt(1 - share) * rng.random(n),
        "size": rng.standard_normal(n) if kind == "skewed" else rng.random(n),
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


def distances(
    rng: np.random.Generator,
    properties: Properties,
    effects: Mapping[str, float],
    family: IntArray | None = None,
) -> FloatArray:
    """(n_systems, n_systems) distances: of properties, of each system, of pairs.

    Parameters
    ----------
    family : each two families have a distance of their own
    """
    apart = dict(zip(properties.values, properties.distances(), strict=True))
    n = len(next(iter(apart.values())))
    own = rng.standard_normal(n) * OWN
    squares = 1 + own[:, None] + own + PAIRS * np.sqrt(2) * symmetric(rng, n)
    squares += sum(
        (effect * apart[name] ** 2 for name, effect in effects.items()), np.zeros((n, n))
    )
    if family is not None:
        pairs = FAMILIES * symmetric(rng, int(family.max()) + 1)
        squares += pairs[np.ix_(family, family)]
    found = np.sqrt(np.maximum(squares, 0.01))
    np.fill_diagonal(found, 0)
    return found


def rejections(truth: str, n: int, n_families: int, first: int, n_sets: int) -> list[Row]:
    """How often the test finds each property, of those that do not matter, in some data sets."""
    effects, found = NULLS[truth], list[tuple[str, float]]()
    for seed in range(first, first + n_sets):
        rng = np.random.default_rng([n, n_families, list(NULLS).index(truth), seed])
        values, family = systems(rng, n, n_families, "whole")
        properties = Properties(values)
        apart = distances(rng, properties, effects, family if "family" in effects else None)
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
    table["found"], table["tested"] = table["p"] <= SIGNIFICANT, table["p"].notna()
    counts = table.groupby("property", sort=False)[["tested", "found"]].sum().reset_index()
    known = {"study": "level", "truth": truth, "systems": n, "families": n_families}
    counts = counts[~counts["property"].isin(list(effects))].assign(sets=n_sets, **known)
    return list(counts.to_dict("records"))


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
        apart = distances(rng, properties, effects, family if whole else None)
        families = values["family"] if whole else ()
        found = second_level({"d": Measured(apart)}, properties, families=families, seed=seed)
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
        Task(f"level, {truth}, {n} in {f}, from {first}", rejections, (truth, n, f, first, size))
        for size, most in [(QUICK, QUICK) if quick else (TESTS_PART, TESTS)]
        for first in range(0, most, size)
        for truth in NULLS
        for n, f in DESIGNS
    ]
    for study, truth, effects, designs in (
        ("power", "size", CARRIER, POWER),
        *(("confounded", truth, effects, TOGETHER) for truth, effects in CONFOUNDS.items()),
        ("coverage", "mixed", MIXED, COVERED),
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
    return found


def of_second_level(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Levels of the test, coverage of the intervals, power, and confounded properties."""
    level = rows[rows["study"] == "level"]
    at = ["systems", "families", "truth", "property"]
    sums = level.groupby(at, sort=False)[["found", "tested", "sets"]].sum().reset_index()
    share = (sums["found"] / sums["tested"].where(sums["tested"] > 0)).map("{:.1%}".format)
    some = (sums["tested"] / sums["sets"]).map(" (of {:.0%})".format)
    sums["cell"] = share.where(sums["tested"] > 0, "no test") + some.where(
        sums["tested"].between(1, sums["sets"] - 1), ""
    )
    sums["design"] = _designs(sums)
    names = [NAMED, "date", BY_MODELS, "size", *CLASSES]
    levels = {
        f"level where {truth} matters": one.pivot(index="design", columns="property", values="cell")
        .reindex(
            index=sums["design"].unique(), columns=[n for n in names if n in set(one["property"])]
        )
        .rename_axis(columns=None)
        for truth, one in sums.groupby("truth", sort=False)
    }
    own = rows[rows["study"] != "level"].copy()
    own["named"] = (own["lower"] > 0) & (own["p"] < SIGNIFICANT)
    own["design"] = _designs(own) + ", " + own["kind"]
    return levels | {
        "coverage of the second level": _coverage(own[own["study"] == "coverage"]),
        "power of the second level": _power(own[own["study"] == "power"]),
        "confounded properties": _confounded(own[own["study"] == "confounded"]),
    }


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
