"""The 92 images of Kriegeskorte et al. (2008): subjects' IT beside models, from file to table.

    .venv/bin/python examples/images92/images92.py --out results [--data FOLDER]

FOLDER has the files of MATLAB that README.md names. Without it they are made: of the same shape,
from a fixed seed, and of no brain.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import loadmat, savemat
from scipy.spatial.distance import pdist, squareform

from mlem_core.cli.commands import main as mlem

Array = NDArray[np.float64]
BRAINS, MODELS = ("92_brainRDMs", "RDMs"), ("92_modelRDMs", "Models")
JUDGEMENTS = ("92_behavRDMs", "rdms_behav_92")
IMAGES = ("Kriegeskorte_Neuron2008_supplementalData", "stimuli_92objs")
# Each category with its number of images, and whether it is animate, human, a face, natural.
CATEGORIES = {
    "human bodypart": (12, 1, 1, 0, 1),
    "human face": (12, 1, 1, 1, 1),
    "nonhuman bodypart": (12, 1, 0, 0, 1),
    "nonhuman face": (12, 1, 0, 1, 1),
    "natural inanimate": (23, 0, 0, 0, 1),
    "artificial inanimate": (21, 0, 0, 0, 0),
}
FEATURES = {"animate": "animal", "human": "human", "face": "face", "natural": "natural"}
NAMES = ("animacy", "FaceBodyManmadeNatobj", "monkeyIT", "EVA", "HMAX", "V1", "Silhouette", "RADON")
N_SUBJECTS, N_SESSIONS, N_JUDGES, VOXELS = 4, 2, 16, 60


def struct(values: dict[str, list[Any]], shape: tuple[int, ...]) -> NDArray[np.void]:
    """An array of structs as MATLAB has them, from the values of each field."""
    entries = np.empty(shape, dtype=[(name, object) for name in values])
    for name, column in values.items():
        cells = np.empty(len(column), dtype=object)
        cells[:] = column
        entries[name] = cells.reshape(shape)
    return entries


def make_stand_in(folder: Path, seed: int = 92) -> None:
    """Write files of MATLAB of the shape of the published ones, from simulated patterns."""
    rng = np.random.default_rng(seed)
    categories = [name for name, (n, *_) in CATEGORIES.items() for _ in range(n)]
    marks = np.array([CATEGORIES[name][1:] for name in categories], dtype=float)
    fields = {
        name: [float(mark) for mark in column]
        for name, column in zip(("animal", "human", "face", "natural"), marks.T, strict=True)
    }
    write(folder, IMAGES, {"category": categories, **fields}, (1, 92))
    signal = marks * (1.0, 0.3, 0.8, 0.2) @ rng.standard_normal((4, VOXELS))
    images, low = 0.8 * rng.standard_normal((2, 92, VOXELS))

    def correlation_rdm(patterns: Array) -> Array:
        return squareform(pdist(patterns, "correlation"))

    def noisy(patterns: Array, size: float) -> Array:
        return correlation_rdm(patterns + size * rng.standard_normal(patterns.shape))

    brains, names = list[Array](), list[str]()
    for subject in range(1, N_SUBJECTS + 1):
        pattern = signal + images + 0.9 * rng.standard_normal((92, VOXELS))
        for session in range(1, N_SESSIONS + 1):
            brains.append(noisy(pattern, 1.5))
            names.append(f"hIT | S{subject} | Session: {session}")
    write(folder, BRAINS, {"RDM": brains, "name": names}, (1, N_SUBJECTS, N_SESSIONS))
    judgements = [noisy(signal + 0.3 * images, 0.5) for _ in range(N_JUDGES)]
    names = [f"simJudge | subject{judge}" for judge in range(1, N_JUDGES + 1)]
    write(folder, JUDGEMENTS, {"RDM": judgements, "name": names}, (1, N_JUDGES))
    groups = np.array(
        [name.split()[-1] if "inanimate" not in name else name for name in categories]
    )
    models = [
        (marks[:, :1] != marks[:, 0]).astype(np.uint8),
        (groups[:, None] != groups).astype(np.uint8),
        noisy(0.8 * signal + 0.5 * images, 1.0),
        *(noisy(share * signal + low, 0.7) for share in (0.35, 0.25, 0.05, 0.15, 0.0)),
    ]
    write(folder, MODELS, {"RDM": models, "name": list(NAMES)}, (1, len(models)))


def write(
    folder: Path, place: tuple[str, str], values: dict[str, list[Any]], shape: tuple[int, ...]
) -> None:
    """Write an array of structs into a file of MATLAB, under the names of both."""
    savemat(folder / f"{place[0]}.mat", {place[1]: struct(values, shape)})


def read(folder: Path, place: tuple[str, str]) -> Any:
    """An array of structs of a file of MATLAB."""
    return loadmat(folder / f"{place[0]}.mat")[place[1]]


def rdms(entries: Any) -> tuple[Array, NDArray[np.str_]]:
    """Distances (n, 92, 92) and names (n,) of structs."""
    matrices = np.stack([entry["RDM"].astype(np.float64) for entry in entries.ravel()])
    return matrices, np.array([str(entry["name"].item()) for entry in entries.ravel()])


def convert(data: Path, out: Path) -> None:
    """Write the stimuli and the distances of subjects, judges and models as `mlem` reads them."""
    images = read(data, IMAGES).ravel()
    categories = pd.Series([str(image["category"].item()) for image in images])
    numbers = (categories.groupby(categories).cumcount() + 1).astype(str)
    table = pd.DataFrame({"stimulus": categories.str.replace(" ", "_") + "_" + numbers})
    for feature, field in FEATURES.items():
        table[feature] = ["yes" if image[field].item() else "no" for image in images]
    table.to_csv(out / "images92.csv", index=False)
    brains = read(data, BRAINS)
    n_sessions = brains.shape[-1]
    # Of each subject the mean over sessions.
    by_session = rdms(brains)[0].reshape(-1, n_sessions, 92, 92)
    np.savez(out / "it.npz", IT=by_session.mean(axis=1))
    matrices, names = rdms(read(data, MODELS))
    np.savez(out / "models.npz", models=matrices, names=names)
    np.savez(out / "judges.npz", judgements=rdms(read(data, JUDGEMENTS))[0])


def main() -> None:
    """Read or make the files, convert them, and compare the models with the subjects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of what is written")
    parser.add_argument("--data", type=Path, help="folder of the published files")
    parser.add_argument("--bootstrap", default="1000", help="resamples, for intervals and p")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = options.data or options.out / "stand-in"
    if options.data is None:
        data.mkdir(exist_ok=True)
        make_stand_in(data)
    convert(data, options.out)
    command = ["analyze", "--stimuli", str(options.out / "images92.csv")]
    for name in ("it", "models"):
        command += ["--representations", f"{name}={options.out / f'{name}.npz'}"]
    command += ["--precomputed", "it,models", "--subject", "models=none"]
    mlem([*command, "--bootstrap", options.bootstrap, "--out", str(options.out)])


if __name__ == "__main__":
    main()
