"""Distances between the values of a feature that is coded by value."""

from mlem_core.extending import Extension, Panel

EXTENSION = Extension(
    name="value_coding",
    title="Distances between the values of a feature",
    sentence="How far apart a layer puts every two values of a feature that is coded by value.",
    entries={"result table": (f"{__name__}.computation",), "figure": (f"{__name__}.figures",)},
    panels=(
        Panel(
            screen="profiles",
            title="Features coded by value",
            icon="call_split",
            part="values",
            show="pages.value_coding:show_values",
        ),
    ),
)
