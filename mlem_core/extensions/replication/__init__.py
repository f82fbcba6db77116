"""Two results, or two halves of one, compared."""

from mlem_core.extending import Command, Extension, Panel

_HERE = "mlem_core.extensions.replication"

EXTENSION = Extension(
    name="replication",
    title="Replication",
    sentence="Whether a result comes again with other stimuli, or in the other half of them.",
    commands=(
        Command(
            name="replicate",
            help="compare two results, or two halves of one stimulus set",
            description="A result replicates where the same feature matters most and the lower "
            "bound of the correlation of importances is above 0.5.",
            examples=("replicate out1 out2 --out found.csv", "replicate out1 --halves"),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:replicate",
            runs_analysis=True,
        ),
    ),
    panels=(
        Panel(
            screen="analyses",
            title="Compare two analyses",
            show="pages.parts.comparison:offer_comparison",
        ),
    ),
)
