"""Treebanks of Universal Dependencies as stimuli."""

from mlem_core.extending import Extension, Panel

_STIMULI = "mlem_core.extensions.treebank.stimuli"

EXTENSION = Extension(
    name="treebank",
    title="Treebanks",
    sentence="Words or sentences of CoNLL-U files as stimuli, with the features of their trees.",
    entries={"stimulus format": (_STIMULI,), "stimulus set": (_STIMULI,)},
    exports={"read_treebank": f"{_STIMULI}:read_treebank"},
    panels=(
        Panel(
            screen="new",
            title="How the treebank is read",
            part="treebank",
            show="pages.form.treebank_choices:show_choices",
        ),
    ),
    options={"stimuli": "mlem_core.extensions.treebank.options:TreebankOptions"},
    doc="docs/stimuli.md",
)
