"""What the figures of regions and time points are exported from."""

from dataclasses import replace
from functools import cache

import numpy as np
from helpers.inputs import in_files
from scipy.spatial.distance import pdist

from mlem_core import run
from mlem_core.extensions.recordings.region_similarity import REGION_SIMILARITY
from mlem_core.extensions.recordings.stage import beside_subjects
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


@cache
def group(sources):
    """Two regions of four subjects beside five models with long names, with intervals."""
    rows, rng = sources.layers(4)[3], sources.rng

    def distances(noises):
        return np.stack([pdist(rows + rng.normal(0, sd, rows.shape)) for sd in noises])

    regions = {name: distances([2] * 4) for name in ("primary visual cortex", "IFG")}
    np.savez(sources.folder / "cortex.npz", **regions)
    names = ["embedding of the last subword", "layer of the encoder 3", "layer of the encoder 4"]
    names += ["phonological edit distance", "word length"]
    np.savez(sources.folder / "models.npz", RDMs=distances((0.1, 0.2, 1, 2, 20)), names=names)
    files = tuple((name, str(sources.folder / f"{name}.npz")) for name in ("cortex", "models"))
    spec = in_files(sources.folder, sources.table, {}, **CHOICES)
    spec = replace(spec, representations=files, precomputed=("cortex", "models"))
    spec = replace(spec, subjects=(("cortex", "all"), ("models", "none")))
    context = sources.context(run(spec, sources.store))
    beside_subjects(context)
    return context


FIGURE_SOURCES = {"time_course": brains, "best_layers": brains}
FIGURE_SOURCES |= {"group_rdms": group, "model_comparison": group}
