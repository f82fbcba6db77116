"""Recordings of brains and behaviour."""

from mlem_core.extending import Extension, Panel, TableSource

_HERE = "mlem_core.extensions.recordings"
_FORMATS = ("hdf5", "matlab", "rsa_files", "mne_files", "nifti")

EXTENSION = Extension(
    name="recordings",
    title="Recordings",
    sentence="Files of the labs that record brains and behaviour, groups and time.",
    bands=f"{_HERE}.stage:bands",
    prepare=f"{_HERE}.stage:prepare",
    exports={"beside_subjects": f"{_HERE}.stage:beside_subjects"},
    entries={
        "array format": tuple(f"{_HERE}.{module}" for module in _FORMATS),
        "figure": (f"{_HERE}.figures", f"{_HERE}.rdms", f"{_HERE}.region_figures"),
    },
    options={"models": f"{_HERE}.options:RecordingOptions"},
    stages={
        "region-similarity": f"{_HERE}.region_tables:REGIONS_JOB",
        "time-course": f"{_HERE}.region_tables:TIME_JOB",
    },
    tables=(
        TableSource(compute=f"{_HERE}.stage:tables", has_intervals=f"{_HERE}.stage:has_intervals"),
        TableSource(compute=f"{_HERE}.region_tables:region_tables"),
    ),
    panels=(
        Panel(
            screen="profiles",
            title="Models beside the subjects",
            icon="bar_chart",
            part="models",
            show="pages.recordings:show_models",
            choices=("ordered_by",),
        ),
        Panel(
            screen="profiles",
            title="Regions and time: importances with p, and onsets",
            icon="timeline",
            figure="time_course",
            stage="time-course",
            button="Compare with chance over time",
            help="Permutes the labels of each feature, in the background. p is corrected over all "
            "regions or time points and features.",
            subject="analysis",
            applies=f"{_HERE}.region_figures:has_recording",
            sentences=f"{_HERE}.region_tables:sentences",
        ),
        Panel(
            screen="heatmap",
            title="Regions and time: the most similar layer",
            icon="timeline",
            figure="best_layers",
            stage="region-similarity",
            button="Compare layers with regions",
            help="Chooses the layer in one half of the stimuli and reports its RSA in the other, "
            "in the background.",
            subject="analysis",
            applies=f"{_HERE}.region_figures:has_model_and_recording",
        ),
    ),
)
