"""Captions say how and on how much, and only what holds of the figure above them."""

from __future__ import annotations

from mlem_core.report import captions

CODING = "whether and by how much they differ"
BASIS = captions.computed_on(1_200, 719_400, 5)


def test_the_basis_counts_what_a_figure_rests_on() -> None:
    assert BASIS == "Computed on 1,200 stimuli, 719,400 pairs, 5 folds."
    assert captions.computed_on(1_200, 719_400) == "Computed on 1,200 stimuli and 719,400 pairs."
    assert captions.computed_on(1_200) == "Computed on 1,200 stimuli."
    tested = captions.computed_on(1_200, held_out="unseen sentences")
    assert tested == "Computed on 1,200 stimuli; tested on unseen sentences."
    coding = "whether they differ"
    assert captions.fitted("ridge", False, None, coding) == (
        "Fitted with ridge. Features are coded by whether they differ."
    )
    text = captions.fitted("estimator spearman", True, "ignore", coding)
    assert text.startswith("Fitted with estimator spearman with interactions")
    assert "missing values are at no distance to any value. Features" in text
    of_values = captions.fitted("ridge", False, "ignore", "which values of pos differ")
    assert "to any value (a value of their own where values are told apart)." in of_values
    assert of_values.endswith("Features are coded by which values of pos differ.")


def test_a_caption_speaks_of_intervals_and_flags_only_where_there_are_some() -> None:
    plain = captions.profiles(BASIS, CODING)
    assert captions.FOLDS in plain and "95 %" not in plain and "Triangles" not in plain
    annotated = captions.profiles(
        BASIS, CODING, "9 tests", "sentences and words", flagged=True, warning="a and b correlate."
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


def test_a_ceiling_knows_what_the_coding_tells_it() -> None:
    assert captions.profiles(BASIS, CODING).count(
        "coded by whether and by how much they differ; it"
    )
    assert "knows nothing of which values differ" in captions.ceiling(CODING)
    of_values = "which values of pos differ (others: whether they differ)"
    assert captions.ceiling(of_values).endswith(f"coded by {of_values}")
    assert "knows nothing" not in captions.ceiling_of("first", of_values)
    assert "ridge penalty α" in captions.scores(CODING) and "β" not in captions.scores(CODING)
    assert "strength β" in captions.scores(of_values) and "1e+12" in captions.scores(of_values)
