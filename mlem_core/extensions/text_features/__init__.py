"""Features that follow from the text of the stimuli."""

from mlem_core.extending import Extension

_HERE = "mlem_core.extensions.text_features"

EXTENSION = Extension(
    name="text_features",
    title="Features of text",
    sentence="Length, place, frequency, neighbours and surprisal of words as features, and rare "
    "values as one.",
    entries={"candidate": (f"{_HERE}.features",), "stimulus step": (f"{_HERE}.steps",)},
    options={"stimuli": "mlem_core.extensions.text_features.options:TextFeatureOptions"},
)
