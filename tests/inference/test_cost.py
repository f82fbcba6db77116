"""How long intervals may take, from a unit that is measured."""

from dataclasses import replace

from mlem_core.inference import cost


def test_the_cost_follows_from_the_units_that_there_are(planted, monkeypatch):
    whole, (a, b) = planted.analysis, planted.analysis.layers[:2]
    monkeypatch.setattr(cost, "_took", lambda work: (work(), 0.5)[1])
    monkeypatch.setattr(cost, "cores", lambda: 2)
    # 120 sentences, left out one by one, as for each of 4 permutations behind an identity, and 99
    # permutations of each feature.
    pairs = whole.tables.n_pairs
    for features in (["colour"], ["colour", "size"]):
        units = (2 + 4 * len(features)) * 120 + 99 * len(features)
        expected = cost.START / 4 + units * (0.5 + pairs * cost.PER_DRAWN) / 2
        assert cost.seconds_of_two(whole, (a, b), features) == expected
    selection = whole.select()
    begun = cost.START + pairs * 3 * cost.PER_PAIR + 20 * len(selection.features) * 0.5 / 2
    fits = 3 * (120 * 0.5 + 12 * (0.5 + 0.5)) / 2
    assert cost.seconds_of_layers(whole, selection) == begun + fits
    # What is not fitted anew costs nothing more, nor does a similarity without models.
    assert cost.seconds_of_layers(whole, replace(selection, estimator="ridge-rank")) == begun
    by = replace(selection, similarity="cka")
    assert cost.seconds_of_layers(whole, by) == cost.OTHERS_OVER_RSA * begun
