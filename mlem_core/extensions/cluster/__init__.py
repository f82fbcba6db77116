"""Other processes and machines that compute parts of an analysis: joblib's loky, Dask."""

from mlem_core.extending import Extension

EXTENSION = Extension(
    name="cluster",
    title="Several processes or machines",
    sentence="Has processes of joblib's loky, or the workers of a Dask scheduler, run the models "
    "and the pass over the pairs.",
    entries={"backend": ("mlem_core.extensions.cluster.backend",)},
)
