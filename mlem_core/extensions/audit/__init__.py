"""Audit: does an artefact explain a result?"""

from mlem_core.extending import Command, Extension

_HERE = "mlem_core.extensions.audit"

EXTENSION = Extension(
    name="audit",
    title="Audit",
    sentence="Whether a few units, scale, outliers, word frequency or another artefact explains "
    "what a layer shows.",
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
    doc="docs/audit.md",
)
