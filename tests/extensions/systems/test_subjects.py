"""Subjects of a file: they are called so, and figures of models as systems are not drawn."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.context import FITS
from mlem_core.extensions.systems.stage import grouped_models
from mlem_core.extensions.systems.summary import group_lines
from mlem_core.figures.context import FIGURES, FigureContext
from mlem_core.figures.profiles import profiles_caption
from mlem_core.report.methods import methods_paragraph

N = 30
OF_MODELS = ("system_alignment", "system_paths", "universality")


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("brain"), np.random.default_rng(5)
    kinds = np.arange(N) % 3
    table = {"stimulus": [f"s{k}" for k in range(N)], "kind": kinds, "size": rng.choice(4, N)}
    pd.DataFrame(table).to_csv(folder / "stimuli.csv", index=False)
    patterns = np.eye(3)[kinds] + 0.5 * rng.standard_normal((4, N, 3))
    np.savez(folder / "it.npz", IT=np.stack([pdist(each) for each in patterns]))
    store = Store(folder / "store")
    files = (("it", str(folder / "it.npz")),)
    spec = AnalysisSpec(str(folder / "stimuli.csv"), representations=files, precomputed=("it",))
    context = FigureContext.from_analysis(run(spec, store, progress=False), store)
    FITS.get(context)
    return context


def test_methods_name_subjects_and_given_distances(context):
    text = methods_paragraph(context.analysis, context.results)
    assert "The subjects were it@subject1" in text and "The models were" not in text
    assert "distances from the file it.npz" in text and "representations from" not in text
    assert "distances of two stimuli were the given distances" in text
    assert "over its subjects" in text and "over its models" not in text
    assert profiles_caption(context, flagged=False).count("Error bars") == 1


def test_sentences_and_figures_are_of_subjects(context):
    (line,) = group_lines(grouped_models(context))
    assert line.startswith("Subjects per group: it 4.") and "model" not in line.lower()
    drawn = {name: FIGURES[name].draw(context) for name in OF_MODELS}
    assert not any(drawn.values())
