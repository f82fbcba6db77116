"""Many models, or subjects: groups, what sets them apart, training."""

from mlem_core.extending import Command, Extension, ModelTable, Panel, Screen, TableSource

_HERE = "mlem_core.extensions.systems"

EXTENSION = Extension(
    name="systems",
    title="Systems and groups",
    sentence="What makes many models, or subjects, alike: groups, properties, training steps.",
    entries={"figure": (f"{_HERE}.group_figures", f"{_HERE}.figures")},
    options={"models": f"{_HERE}.group_spec:GroupOptions"},
    methods=f"{_HERE}.stage:methods",
    prepare=f"{_HERE}.stage:prepare",
    example=f"{_HERE}.stage:example_entries",
    tables=(
        TableSource(compute=f"{_HERE}.stage:tables", has_intervals=f"{_HERE}.stage:has_intervals"),
    ),
    model_tables=(
        ModelTable(
            option="systems",
            metavar="SYSTEMS.csv|families",
            help="a table of models and representations files, a row each in the column system, "
            "with properties that may make them alike; the column group names groups; families: "
            "43 models of 10 families, without those that cannot be had",
            label="Table of systems",
            about="A row for each model or added file, in the column `system`; `group` names "
            "groups, every other column is a property. `mlem systems` writes such a table, "
            "with `--preset families` that of 43 models of 10 families.",
            read=f"{_HERE}.properties:read_systems",
        ),
    ),
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
    screens=(
        Screen(
            url_path="systems",
            title="Systems",
            symbol="scatter_plot",
            least_models=4,
            choices=("measure", "system_a", "system_b"),
        ),
    ),
    panels=(
        Panel(
            screen="map",
            title="Groups",
            part="groups",
            tab="groups",
            sentences=f"{_HERE}.stage:sentences",
        ),
    ),
)
