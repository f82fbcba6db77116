"""Maps of the stimuli in a layer."""

from mlem_core.extending import Extension, Panel

_HERE = __name__

EXTENSION = Extension(
    name="stimulus_maps",
    title="Maps of the stimuli",
    sentence="How a layer lays out the stimuli: those that lie close are represented similarly.",
    entries={"canvas maps": (f"{_HERE}.canvas",), "figure": (f"{_HERE}.figures",)},
    exports={"stimulus_map": f"{_HERE}.computation:stimulus_map"},
    example=f"{_HERE}.computation:compute_for_example",
    panels=(
        Panel(
            screen="map",
            title="The stimuli in all layers of a model",
            icon="grid_view",
            part="model maps",
            show="pages.stimulus_maps:show_model_maps",
        ),
        Panel(
            screen="maps",
            title="Layout of the maps",
            show="pages.stimulus_maps:choose_layout",
            choices=("layout",),
        ),
    ),
)
