"""Options of how a treebank is read."""

from __future__ import annotations

from dataclasses import dataclass

from mlem_core.base.parameters import SEEDS, option, parse_names

# What a stimulus is, with labels.
LEVELS = {"word": "words in their sentences", "sentence": "whole sentences"}


@dataclass(frozen=True, kw_only=True)
class TreebankOptions:
    """What a stimulus of a treebank is, and which sample is drawn."""

    level: str = option(
        "word",
        "Level",
        "Whether a stimulus of a treebank is a word in its sentence or a whole sentence.",
        noun="level of stimuli",
        choices=lambda: LEVELS,
    )
    sample: int | None = option(
        None,
        "Sample",
        "So many words (or sentences) of a treebank, in whole sentences; all where there are no "
        "more. By default 2,000.",
        metavar="N",
        parse=int,
        range=(0, 2**63 - 1),
    )
    balance: tuple[str, ...] = option(
        (),
        "Balance",
        "Features whose values the sample has equally often, as far as whole sentences allow.",
        metavar="a,b",
        parse=parse_names,
    )
    sample_seed: int = option(
        0,
        "Seed of the sample",
        "Another seed draws another sample.",
        metavar="N",
        parse=int,
        range=SEEDS,
    )
