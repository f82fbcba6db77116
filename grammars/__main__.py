"""`python -m grammars` writes the built-in stimulus sets anew."""

from __future__ import annotations

import gzip
from io import BytesIO

from grammars import probing, relative_clauses, treebank
from mlem_core.stimuli.datasets import SETS
from mlem_core.stimuli.stimulus_csv import write_csv
from mlem_core.stimuli.stimulus_set import StimulusSet

MAKERS = {
    "probing": probing.make,
    "relative-clauses": relative_clauses.make,
    "treebank": treebank.make,
}


def packed(stimuli: StimulusSet) -> bytes:
    """A set as the file that ships: the same bytes each time."""
    content = BytesIO()
    write_csv(stimuli, content)
    return gzip.compress(content.getvalue(), mtime=0)


if __name__ == "__main__":
    for name, make in MAKERS.items():
        SETS[name].file.parent.mkdir(exist_ok=True)
        if name == "treebank":
            SETS[name].file.write_text(treebank.text(), encoding="utf-8")
        else:
            SETS[name].file.write_bytes(packed(make()))
