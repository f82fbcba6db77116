"""Duplicated analyses: what an analysis had is what the form of its duplicate asks for."""

from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, noise, words

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.data import datasets
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses
from pages.form import models, options
from pages.form.draft import draft
from pages.parts import choices, stored
from pages.parts.duplicate import form_of

TABLE = words(20).assign(tense=["past", "present"] * 34 + ["past"] * (len(words(20)) - 68))
BANK = "bank.conllu"
TWO, STEPS = ("mini-gpt2", "mini-bert"), ("mini-bert@step512", "mini-bert@step1024")
# Each field with a value that is none's default, and what else such an analysis needs.
ASKED: dict[str, tuple[Any, dict[str, Any]]] = {
    "stimuli": ("words.csv", {}),
    "sep": (";", {"stimuli": "other.csv"}),
    "encoding": ("windows-1252", {}),
    "decimal": (",", {"stimuli": "other.csv", "sep": ";"}),
    "na": (("past", "-"), {}),
    "sheet": ("second", {"stimuli": "words.xlsx"}),
    "roles": ((("tense", "ignore"),), {}),
    "level": ("sentence", {"stimuli": BANK}),
    "sample": (60, {"stimuli": BANK}),
    "balance": (("upos",), {"stimuli": BANK, "sample": 60}),
    "sample_seed": (2**32 - 1, {"stimuli": BANK, "sample": 60}),
    "add": (("word_length",), {}),
    "language": ("de", {}),
    "bins": ((("length", 3),), {}),
    "merge_rare": ((("tense", 30),), {}),
    "vectors": ((("both", ("length", "position")),), {}),
    "rdms": ((("given", "rdm.npy"),), {}),
    "ordered": (("length",), {"nominal": ("position",)}),
    "nominal": (("length",), {}),
    "models": (TWO, {}),
    "representations": ((("brain", "brain.npz"),), {}),
    "precomputed": (("brain",), {"representations": (("brain", "brain.npz"),)}),
    "first_column": ((("brain", "skip"),), {"representations": (("brain", "brain.npz"),)}),
    "layers": ((0, 3), {}),
    "features": (("noun", "position"), {}),
    "missing": ("level", {}),
    "as_in": ("paper1", {}),
    "estimator": ("spearman", {}),
    "interactions": (True, {}),
    "values": (("tense",), {}),
    "distance": ("cosine", {}),
    "already_squared": (True, {"distance": "cosine"}),
    "folds": (37, {}),
    "folds_over": ("items", {}),
    "seed": (2**32 - 1, {}),
    "pairs": (0, {}),
    "device": ("cpu", {}),
    "dtype": ("bfloat16", {}),
    "special_tokens": ("none", {}),
    "pooling": ("mean", {}),
    "positions": ("without-first", {}),
    "units": ("standardised", {}),
    "half": ("second", {}),
    "groups": ((("g", TWO[:1]), ("h", TWO[1:])), {"models": TWO}),
    "labels": (tuple((name, ("size:small",)) for name in TWO), {"models": TWO}),
    "trajectories": ((("t", STEPS),), {"models": STEPS}),
}


@pytest.fixture(scope="module")
def upload(tmp_path_factory):
    """Gives a value with the names of files in it as uploads of a store."""
    folder = tmp_path_factory.mktemp("uploads")
    in_files(folder, TABLE, {"brain": noise(len(TABLE))})
    TABLE.to_csv(folder / "other.csv", sep=";", index=False)
    with pd.ExcelWriter(folder / "words.xlsx") as book:
        TABLE.to_excel(book, sheet_name="first", index=False)
        TABLE.to_excel(book, sheet_name="second", index=False)
    (folder / BANK).write_bytes(datasets.SETS["treebank"].file.read_bytes())
    np.save(folder / "rdm.npy", np.abs(np.subtract.outer(TABLE.index, TABLE.index)))
    store = Store(folder / "store")

    def kept(value):
        if isinstance(value, tuple):
            return tuple(map(kept, value))
        if value in ("words.csv", "other.csv", "words.xlsx", BANK, "rdm.npy", "brain.npz"):
            return str(analyses.keep_upload((folder / value).read_bytes(), value, store))
        return value

    kept.store = store  # type: ignore[attr-defined]
    return kept


@pytest.mark.parametrize("name", [each.name for each in fields(AnalysisSpec)])
def test_a_duplicate_asks_for_what_the_analysis_had(name, upload, monkeypatch):
    value, more = ASKED[name]  # a new field has to stand there
    asked = {"stimuli": "words.csv", "models": ("mini-gpt2",), **more, name: value}
    spec = AnalysisSpec(**{key: upload(one) for key, one in asked.items()})
    assert getattr(spec, name) != next(f.default for f in fields(spec) if f.name == name)
    spec.check()
    form = form_of(spec)
    assert set(form) <= set(choices.FORM)  # or the address does not have it
    monkeypatch.setattr(choices, "get", form.get)
    monkeypatch.setattr(stored, "store", lambda: upload.store)  # type: ignore[attr-defined]
    now = draft()
    assert now.error == ""
    found = models.spec_of(now, options.chosen(now.stimuli))
    # The form says of features by roles what else is said by kinds or names.
    by_roles = {"roles", "ordered", "nominal", "features"}
    for each in fields(AnalysisSpec):
        if each.name not in by_roles:
            assert getattr(found, each.name) == getattr(spec, each.name), each.name
    ours, theirs = (one.load_stimuli().select(one.features) for one in (found, spec))
    assert ours.features == theirs.features
    for each in theirs.features:
        assert ours.table[each.name].equals(theirs.table[each.name]), each.name
