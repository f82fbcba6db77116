"""The choices that an analysis makes itself, on layers of which the better one is planted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import in_files

from mlem_core.analysis import defaults
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.estimators.choice import GAIN, across_folds
from mlem_core.inference.caveats import below_ceiling
from mlem_core.report.methods import methods_paragraph
from mlem_core.storage.store import Store

N = 150
LINE, APART = np.array([[0.0], [1.0], [5.0], [6.0]]), 3.0 * np.eye(4)
AUTO = {"estimator": "auto", "values": "auto"}


def analysis_of(folder, places, outliers=0.0, **asked):
    """Stimuli of four kinds at these places, of a skewed size, where ranks mislead, and noise."""
    rng = np.random.default_rng(0)
    kind, idle = (rng.integers(0, n, N) for n in (4, 7))
    size = np.round(rng.lognormal(0, 1, N))
    texts = [f"word {i} of {i}" for i in range(N)]
    columns = {"kind": np.array(list("abcd"))[kind], "size": size, "idle": idle}
    rows = np.column_stack((places[kind], size, outliers * rng.standard_cauchy((N, 2))))
    layers = {0: rows + 0.5 * rng.standard_normal(rows.shape)}
    table = pd.DataFrame({"sentence": texts, **columns})
    return run(in_files(folder, table, {"m": layers}, **asked), Store(folder / "store"))


@pytest.mark.parametrize(
    ("places", "outliers", "estimator", "values"),
    [(LINE, 0, "ridge", ("kind",)), (APART, 0, "ridge", ()), (APART, 1, "ridge-rank", ())],
    ids=["line", "apart", "outliers"],
)
def test_the_planted_choice_is_made_and_said(tmp_path, places, outliers, estimator, values):
    analysis = analysis_of(tmp_path, places, outliers, **AUTO)
    assert (analysis.spec.estimator, analysis.spec.values) == (estimator, values)
    assert analysis.tables.resolved == values == tuple(analysis.manifest["parameters"]["values"])
    plain, ranked = (across_folds(analysis.tables, one).mean() for one in (False, True))
    assert (ranked - plain > GAIN) == (estimator == "ridge-rank") != (plain - ranked > GAIN)
    # It has the numbers of an analysis with these choices, which does not say that it chose.
    named = run(replace(analysis.spec), Store(tmp_path / "other"))
    pd.testing.assert_frame_equal(named.results().scores, analysis.results().scores)
    of = [methods_paragraph(one, one.results()) for one in (analysis, named)]
    assert [defaults.BY in text for text in of] == [True, False]
    assert analysis.select(estimator="auto") == analysis.select()


def test_many_stimuli_choose_by_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(defaults, "MOST_STIMULI", 100)
    analysis = analysis_of(tmp_path, LINE, **AUTO)
    assert analysis.spec.values == ("kind",) and analysis.tables.n_stimuli == N


def test_with_too_few_folds_the_papers_choices_are_taken(tmp_path):
    analysis = analysis_of(tmp_path, LINE, folds=3, **AUTO)
    assert (analysis.spec.estimator, analysis.spec.values) == ("ridge", ())
    assert defaults.CHOSEN not in analysis.manifest


def test_the_papers_choices_are_one_word():
    assert AnalysisSpec(as_in="paper1") == AnalysisSpec(
        as_in="paper1", estimator="ridge", values=(), distance="euclidean"
    )
    assert AnalysisSpec(as_in="paper1", estimator="spearman").estimator == "spearman"


def test_what_is_far_below_its_ceiling_is_said_with_what_to_try(tmp_path):
    results = analysis_of(tmp_path, LINE, estimator="ridge").results()
    for rho, named in ((0.7, False), (0.5, True)):
        scores = results.scores.assign(ceiling=0.5, rho=0.5 * rho)
        said = below_ceiling(replace(results, scores=scores), "ridge")
        assert ("m (0.25 of 0.50)" in said and "ridge-rank" in said) == named == bool(said)
