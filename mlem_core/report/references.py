"""What a result rests on, as BibTeX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.models.registry import MODELS

# Key -> how it is named in a text, and its entry without the key.
_ENTRIES = {
    "salle2024": (
        "Salle et al., 2024",
        "article",
        {
            "title": "What Makes Two Language Models Think Alike?",
            "author": "Salle, Jeanne and Jalouzot, Louis and Lan, Nur and Chemla, Emmanuel and "
            "Lakretz, Yair",
            "journal": "arXiv preprint arXiv:2406.12620",
            "year": "2024",
        },
    ),
    "jalouzot2024": (
        "Jalouzot et al., 2024",
        "article",
        {
            "title": "Metric Learning Encoding Models: A Multivariate Framework for Interpreting "
            "Neural Representations",
            "author": "Jalouzot, Louis and Pallier, Christophe and Chemla, Emmanuel and "
            "Lakretz, Yair",
            "journal": "arXiv preprint arXiv:2402.11608",
            "year": "2024",
        },
    ),
    "vigna2015": (
        "Vigna, 2015",
        "inproceedings",
        {
            "title": "A Weighted Correlation Index for Rankings with Ties",
            "author": "Vigna, Sebastiano",
            "booktitle": "Proceedings of the 24th International Conference on World Wide Web",
            "pages": "1166--1176",
            "year": "2015",
        },
    ),
    "kriegeskorte2008": (
        "Kriegeskorte et al., 2008",
        "article",
        {
            "title": "Representational Similarity Analysis: Connecting the Branches of Systems "
            "Neuroscience",
            "author": "Kriegeskorte, Nikolaus and Mur, Marieke and Bandettini, Peter",
            "journal": "Frontiers in Systems Neuroscience",
            "volume": "2",
            "pages": "4",
            "year": "2008",
        },
    ),
    "wang2020minilm": (
        "Wang et al., 2020",
        "inproceedings",
        {
            "title": "{MiniLM}: Deep Self-Attention Distillation for Task-Agnostic Compression of "
            "Pre-Trained Transformers",
            "author": "Wang, Wenhui and Wei, Furu and Dong, Li and Bao, Hangbo and Yang, Nan and "
            "Zhou, Ming",
            "booktitle": "Advances in Neural Information Processing Systems",
            "volume": "33",
            "year": "2020",
        },
    ),
    "reimers2019": (
        "Reimers and Gurevych, 2019",
        "inproceedings",
        {
            "title": "Sentence-{BERT}: Sentence Embeddings using {S}iamese {BERT}-Networks",
            "author": "Reimers, Nils and Gurevych, Iryna",
            "booktitle": "Proceedings of EMNLP-IJCNLP 2019",
            "pages": "3982--3992",
            "year": "2019",
        },
    ),
    "allal2025smollm2": (
        "Ben Allal et al., 2025",
        "article",
        {
            "title": "{SmolLM2}: When Smol Goes Big -- Data-Centric Training of a Small Language "
            "Model",
            "author": "Ben Allal, Loubna and others",
            "journal": "arXiv preprint arXiv:2502.02737",
            "year": "2025",
        },
    ),
    "devlin2019bert": (
        "Devlin et al., 2019",
        "inproceedings",
        {
            "title": "{BERT}: Pre-training of Deep Bidirectional Transformers for Language "
            "Understanding",
            "author": "Devlin, Jacob and Chang, Ming-Wei and Lee, Kenton and Toutanova, Kristina",
            "booktitle": "Proceedings of NAACL-HLT 2019",
            "pages": "4171--4186",
            "year": "2019",
        },
    ),
    "radford2019gpt2": (
        "Radford et al., 2019",
        "techreport",
        {
            "title": "Language Models are Unsupervised Multitask Learners",
            "author": "Radford, Alec and Wu, Jeffrey and Child, Rewon and Luan, David and "
            "Amodei, Dario and Sutskever, Ilya",
            "institution": "OpenAI",
            "year": "2019",
        },
    ),
    "gu2023mamba": (
        "Gu and Dao, 2023",
        "article",
        {
            "title": "Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
            "author": "Gu, Albert and Dao, Tri",
            "journal": "arXiv preprint arXiv:2312.00752",
            "year": "2023",
        },
    ),
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
    return _ENTRIES[key][0]


def bibtex(manifest: Mapping[str, Any]) -> str:
    """Entries of the method's papers and of the models that an analysis used, where known."""
    used = [key for name, facts in manifest["models"].items() for key in of_model(name, facts)]
    fits = [spec.reference for spec in ESTIMATORS.values() if spec.reference]
    return _bibtex(dict.fromkeys((*METHOD, *fits, *used)))


def _bibtex(keys: Iterable[str]) -> str:
    entries = []
    for key in keys:
        _, kind, fields = _ENTRIES[key]
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        entries.append("\n".join([f"@{kind}{{{key},", *lines, "}"]))
    return "\n\n".join(entries) + "\n"
