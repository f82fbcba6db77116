"""Erasing a feature from a layer, and what changes."""

from mlem_core.extending import Command, Extension, Panel

_HERE = "mlem_core.extensions.erasure"

EXTENSION = Extension(
    name="erasure",
    title="Causes, by erasing",
    sentence="What a model no longer does, and no longer shares with others, when a feature is "
    "erased from a layer.",
    stages={"erase": f"{_HERE}.stage:JOB"},
    entries={"figure": (f"{_HERE}.figures",)},
    exports={name: f"{_HERE}.stage:{name}" for name in ("Erasure", "erase")},
    commands=(
        Command(
            name="erase",
            help="erase a feature from a layer of a model, and measure what changes",
            description="Names one layer as --model mini-gpt2:3. The feature is erased by a "
            "linear map (LEACE) in the forward pass; importances, similarities and predictions "
            "are compared with those of controls. --layers names the later layers that are "
            "measured; by default all.",
            examples=(
                "erase part_of_speech --model mini-gpt2:3 --stimuli probing --out erase.csv",
            ),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:erase_feature",
            runs_analysis=True,
        ),
    ),
    panels=(
        Panel(
            screen="details",
            title="Erase a feature",
            part="erase",
            show="pages.erasure:show_erasure",
            choices=("erased", "erased_at", "erased_tokens"),
        ),
    ),
)
