"""What a result rests on: the entries of references.bib that it cites."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.models.registry import MODELS

# Key -> its entry in BibTeX; one field a line, names as "Family, Given".
_ENTRIES = {
    entry[1]: entry[0]
    for entry in re.finditer(
        r"^@\w+\{(\w+),.*?^\}",
        Path(__file__).with_name("references.bib").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
}
KEYS = tuple(_ENTRIES)
METHOD = ("salle2024", "jalouzot2024", "vigna2015", "kriegeskorte2008")
_BY_ARCHITECTURE = {
    "BertModel": ("devlin2019bert",),
    "GPT2Model": ("radford2019gpt2",),
    "MambaModel": ("gu2023mamba",),
}


def of_model(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of what a model is from; none where it is not known.

    Parameters
    ----------
    facts : of the manifest's `models`
    """
    for model in MODELS.values():
        if model.references and model.name in name.casefold():
            return model.references
    return _BY_ARCHITECTURE.get(str(facts.get("architecture")), ())


def in_words(key: str) -> str:
    """ "Salle et al., 2024" of "salle2024"."""
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", _ENTRIES[key], re.MULTILINE))
    names = [author.partition(",")[0] for author in fields["author"].split(" and ")]
    if len(names) > 2 or "others" in names:
        names = [f"{names[0]} et al."]
    return f"{' and '.join(names)}, {fields['year']}"


def bibtex(manifest: Mapping[str, Any]) -> str:
    """Entries of the method's papers and of the models that an analysis used, where known."""
    used = [key for name, facts in manifest["models"].items() for key in of_model(name, facts)]
    fits = [spec.reference for spec in ESTIMATORS.values() if spec.reference]
    return "\n\n".join(_ENTRIES[key] for key in dict.fromkeys((*METHOD, *fits, *used))) + "\n"
