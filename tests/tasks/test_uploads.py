"""Uploads that are one source together."""

from __future__ import annotations

from mlem_core.analysis.source import StimulusSource
from mlem_core.data.datasets import SETS
from mlem_core.storage.store import Store
from mlem_core.tasks import uploads


def test_several_files_are_a_folder_that_is_read_as_one_treebank(tmp_path):
    store = Store(tmp_path)
    sentences = SETS["treebank"].file.read_text("utf-8").split("\n\n")[:20]
    parts = [("\n\n".join(sentences[k::2]) + "\n\n").encode() for k in (0, 1)]
    files = [("a.conllu", parts[0]), ("b.conllu", parts[1])]
    folder = uploads.keep(files, store)
    assert sorted(path.name for path in folder.iterdir()) == ["a.conllu", "b.conllu"]
    assert uploads.keep(files[::-1], store) == folder
    assert folder.name == "a_and_1_more"
    both = StimulusSource(str(folder)).load_stimuli()
    alone = [StimulusSource(str(uploads.keep([one], store))).load_stimuli() for one in files]
    assert len(both) == sum(map(len, alone))
    assert uploads.keep([files[0], ("b.conllu", parts[0])], store) != folder


def test_files_of_one_name_are_both_kept(tmp_path):
    store = Store(tmp_path)
    folder = uploads.keep([("a.conllu", b"1"), ("a.conllu", b"2")], store)
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"1", b"2"]


def test_one_file_is_a_file(tmp_path):
    path = uploads.keep([("a.csv", b"x")], Store(tmp_path))
    assert path.is_file() and path.read_bytes() == b"x"
