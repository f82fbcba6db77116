"""Stimuli that were measured several times, in runs or in subjects."""

from mlem_core.extending import Extension

EXTENSION = Extension(
    name="repeated_measures",
    title="Repetitions and subjects",
    sentence="Distances cross-validated over the repetitions of each stimulus.",
    entries={"distance": ("mlem_core.extensions.repeated_measures.crossnobis",)},
)
