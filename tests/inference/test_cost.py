"""How long intervals may take, from a unit that is measured."""

from dataclasses import replace

from mlem_core.inference import replicates


def test_the_cost_follows_from_the_units_that_there_are(planted, monkeypatch):
    whole = planted.analysis
    monkeypatch.setattr(replicates, "_took", lambda work: (work(), 0.5)[1])
    monkeypatch.setattr(replicates, "cores", lambda: 2)
    selection = whole.select()
    begun = replicates.START + whole.tables.n_pairs * 3 * replicates.PER_PAIR
    begun += 20 * len(selection.features) * 0.5 / 2
    # 120 sentences, left out one by one; the penalty is chosen anew without 12 blocks.
    fits = 3 * (120 * 0.5 + 12 * (0.5 + 0.5)) / 2
    assert replicates.seconds_of_layers(whole, selection) == begun + fits
    # What is not fitted anew costs nothing more, nor does a similarity without models.
    assert replicates.seconds_of_layers(whole, replace(selection, estimator="ridge-rank")) == begun
    by = replace(selection, similarity="cka")
    assert replicates.seconds_of_layers(whole, by) == replicates.OTHERS_OVER_RSA * begun
