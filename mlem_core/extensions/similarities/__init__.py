"""Similarities of layers beside RSA: CKA, nearest neighbours, Procrustes, CCA."""

from mlem_core.extending import Extension

EXTENSION = Extension(
    name="similarities",
    title="Other similarities of layers",
    sentence="CKA, the overlap of nearest neighbours, Procrustes and CCA in the place of RSA.",
    entries={"similarity": (f"{__name__}.entries",)},
)
