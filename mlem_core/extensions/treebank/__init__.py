"""Treebanks of Universal Dependencies as stimuli."""

from mlem_core.extending import Extension

_STIMULI = "mlem_core.extensions.treebank.stimuli"

EXTENSION = Extension(
    name="treebank",
    title="Treebanks",
    sentence="Words or sentences of CoNLL-U files as stimuli, with the features of their trees.",
    entries={"stimulus format": (_STIMULI,), "stimulus set": (_STIMULI,)},
    exports={"read_treebank": f"{_STIMULI}:read_treebank"},
    options={"stimuli": "mlem_core.extensions.treebank.options:TreebankOptions"},
)
