"""What the figures of regions and time points are exported from."""

from dataclasses import replace
from functools import cache

import numpy as np
from helpers.inputs import in_files

from mlem_core import run
from mlem_core.extensions.recordings.region_similarity import REGION_SIMILARITY
from mlem_core.extensions.recordings.time_course import TIME_COURSE

CHOICES = {"folds": 3, "features": ("part_of_speech", "tense")}


@cache
def brains(sources):
    """A network beside two subjects over time and one with regions."""
    spec = in_files(sources.folder, sources.table, {"net": sources.layers(3)}, **CHOICES)
    rows, rng = sources.layers(4)[3], sources.rng
    gains = {f"{ms} ms": (ms > 150) + 0.1 for ms in range(-100, 400, 100)}
    noise = rng.standard_normal((len(gains), 2, *rows.shape))
    meg = {at: gain * rows + of for (at, gain), of in zip(gains.items(), noise, strict=True)}
    regions = ("primary visual cortex", "superior temporal sulcus", "IFG")
    for name, arrays in (("meg", meg), ("fmri", dict.fromkeys(regions, rows + noise[0, 0]))):
        np.savez(sources.folder / f"{name}.npz", **arrays)
    files = tuple((name, str(sources.folder / f"{name}.npz")) for name in ("meg", "fmri"))
    axes, subjects = (("meg", "time:ms"), ("fmri", "region")), (("meg", "all"),)
    files = (*spec.representations, *files)
    spec = replace(spec, representations=files, axes=axes, subjects=subjects)
    context = sources.context(run(spec, sources.store))
    REGION_SIMILARITY.get(context)
    TIME_COURSE.get(context)
    return context


FIGURE_SOURCES = {"time_course": brains, "best_layers": brains}
