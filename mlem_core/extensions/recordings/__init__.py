"""Recordings of brains and behaviour."""

from mlem_core.extending import Extension

_HERE = "mlem_core.extensions.recordings"

EXTENSION = Extension(
    name="recordings",
    title="Recordings",
    sentence="Files of the labs that record brains and behaviour, groups and time.",
    entries={"array format": (f"{_HERE}.hdf5",)},
)
