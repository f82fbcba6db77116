"""What else explains the similarity of two layers."""

from mlem_core.extending import Command, Extension

_HERE = "mlem_core.extensions.candidates"

EXTENSION = Extension(
    name="candidates",
    title="What else explains",
    sentence="Which columns beyond the features explain more of the similarity of two layers, or "
    "of one layer.",
    commands=(
        Command(
            name="what-else",
            help="find columns that explain more of two layers' similarity than the features",
            description="Candidates follow from the words and sentences, from the tokens and "
            "predictions of the models, or are other columns of the stimuli and distances in "
            "other layers. Their gains are beyond those with their labels permuted.",
            examples=("what-else minilm:3 smollm2:20 --stimuli probing --out candidates.csv",),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:search_candidates",
            runs_analysis=True,
        ),
    ),
    doc="docs/why.md",
)
