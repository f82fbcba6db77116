"""Decoding: can each feature be read out of a layer?"""

from mlem_core.extending import Extension, Panel, TableSource

_HERE = "mlem_core.extensions.decoding"

EXTENSION = Extension(
    name="decoding",
    title="Decoding of each feature",
    sentence="How well a linear classifier reads each feature out of each layer.",
    stages={"baseline": f"{_HERE}.stage:JOB"},
    entries={"figure": (f"{_HERE}.figures",)},
    tables=(
        TableSource(
            option="baselines",
            names=("decoding",),
            help="also write decoding.csv: how well a linear classifier reads out each feature; "
            "seconds per layer",
            compute=f"{_HERE}.stage:decoding_tables",
        ),
    ),
    panels=(
        Panel(
            screen="profiles",
            title="Decoding: can each feature be read out?",
            icon="balance",
            figure="baseline_decoding",
            stage="baseline",
            button="Compute it",
            help="Fits a linear classifier for each feature and layer that is shown, in the "
            "background, on the same stimuli and folds; what is done is kept.",
        ),
    ),
)
