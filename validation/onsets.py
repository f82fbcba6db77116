"""How often intervals of onsets hold the truth, and how often noise has an onset.

Recordings of one or several subjects over time, whose noise is a first-order process over time
points. From some time on they carry a feature, at once or slowly; another feature is nowhere. The
truth is the time of half of the maximum in large sets of subjects and stimuli.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extensions.recordings.time_course import TIME_COURSE, time_of_half
from mlem_core.inference.importance_null import IMPORTANCE_NULL
from validation.work import Row, Task

TIMES = np.arange(-50.0, 300.0, 25.0)
UNITS, STIMULI, PERMUTATIONS = 12, 60, 39
# Correlation of the noise with that of the time point before; sd of the onset over subjects (ms).
SERIAL, LATENCY = 0.8, 15.0
# Shape of the onset, size of the effect, subjects, data sets.
DESIGNS = (
    ("no feature", 0.0, 1, 240),
    ("at once", 1.2, 1, 100),
    ("slowly", 1.2, 1, 100),
    ("slowly, weak", 0.7, 1, 100),
    ("slowly", 1.2, 5, 24),
    ("no feature", 0.0, 5, 24),
    ("at once", 1.2, 5, 24),
)
LARGE, LARGE_SETS, PART, QUICK = (20, 400), 5, 20, 2


def course(shape: str, onset: FloatArray) -> FloatArray:
    """(n_subjects, n_times) how much of the feature each time point carries."""
    since = TIMES - onset[:, None]
    if shape == "at once":
        return np.asarray(1 / (1 + np.exp(-since / 8)))
    return np.clip((since + 75) / 150, 0.0, 1.0)


def drawn(shape: str, effect: float, n_subjects: int, labels: IntArray, seed: int) -> FloatArray:
    """Arrays (n_times, n_subjects, n_stimuli, n_units) of a feature with labels (n_stimuli,)."""
    rng = np.random.default_rng([seed, n_subjects, len(labels)])
    onset = 150.0 + LATENCY * rng.standard_normal(n_subjects) * (n_subjects > 1)
    gains, along = course(shape, onset), rng.standard_normal((n_subjects, 1, UNITS))
    along /= np.sqrt((along**2).mean(axis=-1, keepdims=True))
    signal = effect * (labels - 0.5)[:, None] * along
    noise, arrays = rng.standard_normal(signal.shape), []
    for gain in gains.T:
        noise = SERIAL * noise + np.sqrt(1 - SERIAL**2) * rng.standard_normal(signal.shape)
        arrays.append(noise + gain[:, None, None] * signal)
    return np.stack(arrays)


def analysed(
    folder: Path, design: tuple[str, float, int], n_stimuli: int, seeds: Sequence[int]
) -> SelectionContext:
    """Analysis of a recording a seed, of the same stimuli."""
    labels = np.random.default_rng(seeds[0]).integers(0, 2, (2, n_stimuli))
    names = [f"stimulus {n}" for n in range(n_stimuli)]
    of_labels = {f: [f"{f}{x}" for x in row] for f, row in zip("ab", labels, strict=True)}
    pd.DataFrame({"sentence": names, **of_labels}).to_csv(folder / "stimuli.csv", index=False)
    files = {f"meg{seed}": folder / f"meg{seed}.npz" for seed in seeds}
    single = design[2] == 1
    for seed, path in zip(seeds, files.values(), strict=True):
        arrays = zip(TIMES, drawn(*design, labels[0], seed), strict=True)
        np.savez(path, **{f"{ms:.0f} ms": rows[0] if single else rows for ms, rows in arrays})
    spec = AnalysisSpec(
        str(folder / "stimuli.csv"),
        representations=tuple((name, str(path)) for name, path in files.items()),
        subjects=() if single else tuple((name, "all") for name in files),
        axes=tuple((name, "time:ms") for name in files),
        estimator="ridge",
        values="none",
    )
    store = Store(folder / "store", overlays=())
    return SelectionContext.from_analysis(run(spec, store), store)


def truth(shape: str, effect: float, n_subjects: int, n_sets: int) -> list[Row]:
    """Time of half of the maximum in large sets of stimuli, of subjects if there are several."""
    size = LARGE[0] if n_subjects > 1 else 1
    with TemporaryDirectory() as folder:
        seeds = range(1_000, 1_000 + n_sets)
        context = analysed(Path(folder), (shape, effect, size), LARGE[1], seeds)
        table = context.analysis.results().importance.query("feature == 'a'")
    curve = table.groupby("layer")["importance"].mean().to_numpy()
    time = time_of_half(TIMES, curve, len(TIMES) - 2)
    return [{"shape": shape, "subjects": n_subjects, "truth": time}]


def part(shape: str, effect: float, n_subjects: int, first: int, n: int) -> list[Row]:
    """Onsets in some data sets, whose stimuli and permutations are the same."""
    with TemporaryDirectory() as folder:
        design = shape, effect, n_subjects
        context = analysed(Path(folder), design, STIMULI, range(first, first + n))
        # Those of all recordings at once take much less time than one by one.
        IMPORTANCE_NULL.get(context, permutations=PERMUTATIONS)
        onsets = TIME_COURSE.get(context, permutations=PERMUTATIONS).onsets
    about = {"shape": shape, "subjects": n_subjects}
    return [about | row._asdict() for row in onsets.itertuples(index=False)]


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    parts = []
    for shape, effect, n_subjects, n_sets in DESIGNS:
        name, how = f"{shape}, {n_subjects} subjects", (shape, effect, n_subjects)
        if effect:
            parts.append(Task(f"truth, {name}", truth, (*how, 1 if quick else LARGE_SETS)))
        size, most = (QUICK, QUICK) if quick else (PART // n_subjects, n_sets)
        parts += [
            Task(f"{name}, from {first}", part, (*how, first, size))
            for first in range(0, most, size)
        ]
    return parts


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often there are onsets, and how often their intervals hold the truth."""
    table = []
    for (shape, subjects), cell in rows.groupby(["shape", "subjects"], sort=False):
        target = cell["truth"].dropna()
        sets = cell[cell["truth"].isna()]
        none = sets[(sets["feature"] == "b") | (shape == "no feature")]
        claims = none.groupby("recording")["significant_from"].apply(lambda x: x.notna().any())
        row = {
            "the feature comes": shape,
            "subjects": f"{subjects:.0f}",
            "data sets": f"{len(claims):,}",
            "a feature that is nowhere has an onset": _share(claims),
        }
        if len(target):
            known = sets[(sets["feature"] == "a")]
            onsets = known.dropna(subset=["onset"])
            held = (onsets["lower"] <= target.iloc[0]) & (target.iloc[0] <= onsets["upper"])
            width, sd = (onsets["upper"] - onsets["lower"]).median(), onsets["onset"].std()
            row |= {
                "the feature has one": _share(known["onset"].notna()),
                "truth (ms)": f"{target.iloc[0]:.1f}",
                "mean onset (sd)": f"{onsets['onset'].mean():.1f} ({sd:.1f})",
                "held": _share(held),
                "median width": f"{width:.1f} ({width / (2 * 1.96 * sd):.2f})",
                "mean of `significant_from`": f"{onsets['significant_from'].mean():.1f}",
            }
        table.append(row)
    return {"onsets": pd.DataFrame(table).fillna("").set_index("the feature comes")}


def _share(claims: pd.Series[bool]) -> str:
    """A share with its Monte-Carlo error."""
    share = float(claims.mean())
    return f"{share:.1%} ± {np.sqrt(share * (1 - share) / len(claims)):.1%}"
