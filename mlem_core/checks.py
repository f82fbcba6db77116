"""What in the features leaves a fit undecided."""

from __future__ import annotations

import itertools

import numpy as np

from mlem_core.equations import training_blocks
from mlem_core.tables import PairTables


def feature_notices(tables: PairTables) -> list[str]:
    """What the features' own values make uncertain about every fit: a sentence each.

    A feature that is the same everywhere in a fold's training stimuli, two features that tell apart
    the same pairs, more weights than patterns.

    Parameters
    ----------
    tables : `with_interactions` decides how many weights there are
    """
    notices = []
    blocks = training_blocks(tables.n_folds, [(k,) for k in range(tables.n_folds)])
    present = [np.unique(tables.cell_pattern[use[tables.cell_block]]) for use in blocks]
    for f, name in enumerate(tables.features):
        folds = [k for k, own in enumerate(present) if len(np.unique(tables.codes[own, f])) < 2]
        if len(folds) == tables.n_folds:
            notices.append(
                f"The feature {name!r} has the same distance in all pairs of stimuli; its weights "
                "and importances are 0."
            )
        elif folds:
            named = ", ".join(str(k) for k in folds)
            notices.append(
                f"The feature {name!r} has the same distance in all pairs that are left to train "
                f"on without fold {named}; its weight there is 0."
            )
    whole = np.unique(np.concatenate(present))
    for f, g in itertools.combinations(range(len(tables.features)), 2):
        pairs = np.unique(tables.codes[whole][:, [f, g]], axis=0)
        sizes = [len(np.unique(pairs[:, c])) for c in (0, 1)]
        if sizes[0] == sizes[1] == len(pairs) > 1:
            notices.append(
                f"The features {tables.features[f]!r} and {tables.features[g]!r} tell apart the "
                "same stimuli, so how their weight is divided between them means nothing; leave "
                "one of them out."
            )
    fewest = min(len(own) for own in present)
    if len(tables.columns) >= fewest:
        notices.append(
            f"The model has {len(tables.columns)} weights, but the features tell the pairs of "
            f"stimuli apart in only {fewest} ways; other weights would fit as well, so choose "
            f"fewer features{' or no interactions' if tables.interactions else ''}."
        )
    return notices
