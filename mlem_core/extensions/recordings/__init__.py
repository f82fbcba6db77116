"""Recordings of brains and behaviour."""

from mlem_core.extending import Extension, TableSource

_HERE = "mlem_core.extensions.recordings"

EXTENSION = Extension(
    name="recordings",
    title="Recordings",
    sentence="Files of the labs that record brains and behaviour, groups and time.",
    entries={"array format": (f"{_HERE}.hdf5",)},
    stages={
        "region-similarity": f"{_HERE}.region_tables:REGIONS_JOB",
        "time-course": f"{_HERE}.region_tables:TIME_JOB",
    },
    tables=(TableSource(compute=f"{_HERE}.region_tables:region_tables"),),
)
