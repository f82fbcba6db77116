"""Captions say how and on how much, and only what holds of the figure above them."""

from __future__ import annotations

from mlem_core.report import captions

BASIS = captions.computed_on(1_200, 719_400, 5)


def test_the_basis_counts_what_a_figure_rests_on() -> None:
    assert BASIS == "Computed on 1,200 stimuli, 719,400 pairs, 5 folds."
    assert captions.computed_on(1_200, 719_400) == "Computed on 1,200 stimuli and 719,400 pairs."
    assert captions.computed_on(1_200) == "Computed on 1,200 stimuli."
    tested = captions.computed_on(1_200, held_out="unseen sentences")
    assert tested == "Computed on 1,200 stimuli; tested on unseen sentences."
    assert captions.fitted("ridge", False, None) == "Fitted with ridge."
    text = captions.fitted("estimator spearman", True, "ignore")
    assert text.startswith("Fitted with estimator spearman with interactions")
    assert text.endswith("missing values are at no distance to any value.")


def test_a_caption_speaks_of_intervals_and_flags_only_where_there_are_some() -> None:
    plain = captions.profiles(BASIS)
    assert captions.FOLDS in plain and "95 %" not in plain and "Triangles" not in plain
    annotated = captions.profiles(
        BASIS, "9 tests", "sentences and words", flagged=True, warning="a and b correlate."
    )
    assert "95 % confidence intervals over sentences and words;" in annotated
    assert "over sentences," in captions.similarity(BASIS, "9 tests", "sentences")
    assert "over sentences;" in captions.compare(BASIS, "sentences")
    assert captions.FOLDS in captions.compare(BASIS)
    assert "family of 9 tests" in annotated and "Triangles" in annotated
    assert captions.FOLDS not in annotated and "a and b correlate. Computed on" in annotated
    assert "two upper triangles." in captions.similarity(BASIS)
    assert "two upper triangles, here 0.63." in captions.similarity(BASIS, agreement=0.634)
    assert "seeded sample of 1,000" in captions.stimulus_map(1_000, 1_200)
    assert "sample" not in captions.stimulus_map(1_000, 1_000)
