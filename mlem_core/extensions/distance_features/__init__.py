"""Features that are given by distances between stimuli."""

from mlem_core.extending import Extension

_FEATURES = "mlem_core.extensions.distance_features.features"

EXTENSION = Extension(
    name="distance_features",
    title="Features given by distances",
    sentence="Several columns as one vector, and matrices of distances (RDMs), as features.",
    entries={"stimulus step": (_FEATURES,)},
    exports={"with_rdm": f"{_FEATURES}:with_rdm", "with_vector": f"{_FEATURES}:with_vector"},
    options={"stimuli": "mlem_core.extensions.distance_features.options:DistanceFeatureOptions"},
)
