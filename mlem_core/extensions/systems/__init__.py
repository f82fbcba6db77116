"""Many models: groups, properties, training."""

from mlem_core.extending import Command, Extension

_HERE = "mlem_core.extensions.systems"

EXTENSION = Extension(
    name="systems",
    title="Systems and groups",
    sentence="What makes many models, or subjects, alike: groups, properties, training steps, "
    "noise ceilings.",
    commands=(
        Command(
            name="systems",
            help="write a table of models with the properties that their configurations tell",
            description="To be completed by hand: family, release date and training tokens stand "
            "in no configuration. A column that is empty or the same for all models does no "
            "harm.",
            examples=("systems --model minilm --model smollm2 --out systems.csv",),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:write_systems",
        ),
    ),
    options={"models": "mlem_core.groups.group_spec:GroupOptions"},
    doc="docs/systems.md",
)
