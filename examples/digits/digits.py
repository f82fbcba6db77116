"""What a small network makes of handwritten digits: an analysis from outside language.

    .venv/bin/python examples/digits/digits.py --out results

The 1,797 images of 8 × 8 pixels come with scikit-learn. A network with two hidden layers learns to
name the digit on one part of them; the stimuli are images that it has not seen, and its layers are
a file of arrays, as any system's can be. README.md says what comes out.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from mlem_core import Analysis, AnalysisSpec, Store, run, stimulus_map, write_csv
from mlem_core.extensions.stimulus_maps.figures import stimulus_map as stimulus_map_figure
from mlem_core.figures.export import as_file
from mlem_core.figures.maps import layer_maps
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import similarity_matrices

HIDDEN = (64, 32)
Array = NDArray[np.float64]


def features(images: Array, digits: NDArray[np.int64]) -> pd.DataFrame:
    """The stimulus table of images (n_images, 8, 8) with ink from 0 to 16, a row an image.

    All features but the digit are measured in the image itself, and in few steps: pairs with equal
    columns are then one group, and permutation importances are computed and not drawn.
    """
    y, x = np.mgrid[0:8, 0:8]
    rows = []
    for number, (image, digit) in enumerate(zip(images, digits, strict=True)):
        ink = image / image.sum()
        dy, dx = y - (ink * y).sum(), x - (ink * x).sum()
        lean = (ink * dx * dy).sum() / np.sqrt((ink * dx**2).sum() * (ink * dy**2).sum())
        rows.append(
            {
                "sentence": f"image {number}",  # what the stimulus is called
                "digit": int(digit),
                "loops": loops(image),
                "stroke_mass": round(image.mean() * 2),
                "width": int((image.max(axis=0) > 4).sum()),
                "slant": round(-lean * 5) / 5,
                "upper_half": round(ink[:4].sum() * 10) / 10,
            }
        )
    return pd.DataFrame(rows)


def loops(image: Array) -> int:
    """How many regions of paper the stroke encloses: 1 in a well closed 0, 2 in an 8."""
    large = ndimage.zoom(np.pad(image, 1), 4, order=1)
    paper, n = ndimage.label(large < 7)
    sizes = np.bincount(paper.ravel(), minlength=n + 1)[1:]
    return int((sizes >= 6).sum()) - 1  # one region is around the stroke


def layers(images: Array, weights: list[Array], biases: list[Array]) -> dict[str, Array]:
    """The states of a network: layer_00 the pixels, then each layer's output, (n_images, n_units).

    The last one is what goes into the softmax.
    """
    states = [images.reshape(len(images), -1) / 16]
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        state = states[-1] @ weight + bias
        states.append(state if k == len(weights) - 1 else np.maximum(state, 0))
    return {f"layer_{k:02d}": state for k, state in enumerate(states)}


def make(out: Path, n_images: int, seed: int) -> float:
    """Write the stimuli and the layers of two networks into `out`; the trained one's accuracy."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.images))
    seen, unseen = order[n_images:], order[:n_images]
    network = MLPClassifier(HIDDEN, max_iter=60, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(data.data[seen] / 16, data.target[seen])
    rng = np.random.default_rng(seed)
    fresh = [  # as the trained one began
        rng.uniform(-1, 1, weight.shape) * np.sqrt(6 / sum(weight.shape))
        for weight in network.coefs_
    ]
    images = data.images[unseen]
    write_csv(features(images, data.target[unseen]), out / "digits.csv")
    np.savez(
        out / "trained.npz",
        allow_pickle=False,
        **layers(images, network.coefs_, network.intercepts_),
    )
    zeros = [np.zeros_like(bias) for bias in network.intercepts_]
    np.savez(out / "untrained.npz", allow_pickle=False, **layers(images, fresh, zeros))
    return float(network.score(data.data[unseen] / 16, data.target[unseen]))


def analyse(out: Path, store: Store) -> Analysis:
    """The analysis of what `make` wrote, its tables and its figures."""
    spec = AnalysisSpec(
        stimuli=str(out / "digits.csv"),
        representations=tuple(
            (name, str(out / f"{name}.npz")) for name in ("trained", "untrained")
        ),
        nominal=("digit",),  # a 9 is no nearer to an 8 than to a 1
        as_in="paper1",
    )
    analysis = run(spec, store)
    results = analysis.results()
    results.write(out, analysis.manifest)
    names = [feature.name for feature in analysis.stimuli.features]
    drawn = {
        "profiles": profiles(results.importance, results.scores, names),
        "similarity": similarity_matrices(results.similarity_profiles, results.similarity_rsa),
        "layer_map": layer_maps(results.layer_map),
    }
    table = analysis.stimuli.table
    for layer in (0, 2):
        points = stimulus_map(analysis, "trained", layer, store)
        points["digit"] = table["digit"].to_numpy()[points["stimulus"]]
        points["label"] = table["sentence"].to_numpy()[points["stimulus"]]
        title = f"trained, layer {layer}"
        drawn[f"images_{layer}"] = stimulus_map_figure(points, "digit", "nominal", title)
    for name, figure in drawn.items():
        (out / f"{name}.html").write_bytes(as_file(figure, "html", title=name))
    return analysis


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--images", type=int, default=600, help="how many are stimuli (600)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    accuracy = make(options.out, options.images, options.seed)
    print(f"the network names {accuracy:.0%} of the {options.images} unseen images rightly")
    analysis = analyse(options.out, Store())
    for notice in analysis.notices:
        print(notice)
    importance = analysis.results().importance
    means = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    print(means.unstack().round(3).to_string())
    print(f"tables and figures are in {options.out}")


if __name__ == "__main__":
    main()
