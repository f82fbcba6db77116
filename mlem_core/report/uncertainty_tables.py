"""Tables of a capsule beside the results: how sure they are.

They take long, and are written where they have been made. `verify` computes the intervals again,
and only names the audit, claims and other similarities.
"""

from __future__ import annotations

import pandas as pd

from mlem_core.analysis.similarities import kept_similarity
from mlem_core.figures.context import FigureContext
from mlem_core.figures.multiverse import claimed
from mlem_core.inference.explanation import best_known, explain, explanation_of
from mlem_core.inference.permutation import CHANCE, SCORE_PERMUTATIONS
from mlem_core.inference.tables import importance_difference_table
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.robustness.claims import by_choice, curve, of_chance, over_stimuli, verdict
from mlem_core.robustness.flags import flags

Tables = dict[str, pd.DataFrame]


def how_sure(shown: FigureContext) -> Tables:
    """What has been made of the audit, a claim, two layers alone, scores and other similarities."""
    return {
        **_audit(shown),
        **_claim(shown),
        **_two(shown),
        **_chance(shown),
        **_similarities(shown),
    }


def _two(shown: FigureContext) -> Tables:
    """The intervals of the two layers that were resampled alone."""
    why = shown.why if shown.several else None
    if why is None or not why.alone or not len(why.terms):
        return {}
    return {
        "why_resampled.csv": why.terms,
        "why_resampled_whole.csv": why.whole,
        "why_resampled_partial.csv": why.partial,
    }


def _chance(shown: FigureContext) -> Tables:
    """What the scores are by chance."""
    of = shown.selection
    found = shown.analysis.kept(CHANCE, shown.drawing.store, of, permutations=SCORE_PERMUTATIONS)
    return {} if found is None else {"chance.csv": found}


def _similarities(shown: FigureContext) -> Tables:
    """Similarities other than RSA of what is shown, and their terms."""
    tables, store = Tables(), shown.drawing.store
    if store is None or not shown.several:
        return tables
    for name in SIMILARITIES:
        found = None if name == RSA else kept_similarity(shown.analysis, name, store)
        if found is not None:
            own, chance = found.of(shown.analysis, shown.selection), shown.chance_of(name)
            tables |= own.written(chance and chance.of_all(own.decomposed()))
            two = explain(shown.analysis, *shown.pair, shown.selection.features, compared=found)
            two = best_known(two, shown.analysis, shown.selection, store, chance=chance)
            divides = found.similarity.divides
            tables |= {f"why_{name}.csv": two.terms} if divides else {f"pair_{name}.csv": two.whole}
    return tables


def in_intervals(shown: FigureContext) -> Tables:
    """Confidence intervals and tests, where they have been made."""
    intervals, tables = shown.intervals, Tables()
    if intervals is None or shown.score_tests is None:
        return {}
    tables["intervals.csv"] = shown.score_tests.table
    if shown.similarity_tests is not None:
        tables["similarity_intervals.csv"] = shown.similarity_tests.table
        differences = importance_difference_table(intervals, *shown.pair, shown.correction)
        tables["difference_intervals.csv"] = differences.table
        if len(intervals.terms):
            if (chance := shown.chance_of(RSA)) is not None:
                chance = chance.of_layers(list(map(shown.selection.layers.index, shown.pair)))
            why = explanation_of(intervals, *shown.pair, shown.coding, chance)
            tables["why_whole_intervals.csv"] = why.whole
            tables["why_intervals.csv"] = why.terms
    return tables


def _audit(shown: FigureContext) -> Tables:
    audit = shown.audit
    if audit is None:
        return {}
    return {
        "audit.csv": audit.layers,
        "audit_changes.csv": audit.changes,
        "audit_pairs.csv": audit.pairs,
        "audit_marks.csv": flags(audit),
    }


def _claim(shown: FigureContext) -> Tables:
    if not shown.several:
        return {}
    claim, found = claimed(shown)
    if found is None:
        return {}
    chance = shown.importance_chance
    said = {"claim": claim.sentence, "verdict": verdict(claim, found, chance=chance)}
    said |= {"chance": of_chance(claim, chance)} if claim.features else {}
    over = None if shown.intervals is None else over_stimuli(claim, shown.intervals)
    if over is not None:
        said |= {"over_stimuli": over.sentence}
    return {
        "claim.csv": pd.DataFrame([said]),
        "claim_margins.csv": curve(claim, found, chance),
        "claim_choices.csv": by_choice(claim, found, chance),
        "universes.csv": found.universes,
        "universe_layers.csv": found.layers,
        "universe_importance.csv": found.importance,
        "universe_similarity.csv": found.similarity,
    }
