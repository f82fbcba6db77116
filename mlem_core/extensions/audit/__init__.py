"""Audit: does an artefact explain a result?"""

from mlem_core.extending import Command, Extension, Panel

_HERE = "mlem_core.extensions.audit"

EXTENSION = Extension(
    name="audit",
    title="Audit",
    sentence="Whether a few units, scale, outliers, word frequency or another artefact explains "
    "what a layer shows.",
    stages={"audit": f"{_HERE}.stage:JOB"},
    entries={"figure": (f"{_HERE}.figures",)},
    flags=f"{_HERE}.stage:audit_flags",
    check=f"{_HERE}.stage:audit_checks",
    example=f"{_HERE}.stage:audit_example",
    commands=(
        Command(
            name="audit",
            help="check every layer for artefacts, and write the tables as CSV",
            examples=("audit --stimuli probing --model minilm --out audit",),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:audit_layers",
            writes_folder=True,
            runs_analysis=True,
        ),
    ),
    panels=(
        Panel(
            screen="checks",
            title="Audit of every layer",
            icon="rule",
            figure="audit",
            about="Runs the analysis again without the stimuli at position 0, with cosine "
            "distance, with standardised units, without outlier units and with random weights, "
            "and says which conclusions change.",
            sentences=f"{_HERE}.stage:sentences",
            tables=f"{_HERE}.stage:tables",
            stage="audit",
            subject="analysis",
            button="Audit every layer",
            help="Works in the background on stored representations; only the control with "
            "random weights runs the models again. It takes a few minutes.",
        ),
    ),
)
