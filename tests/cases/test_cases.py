"""Files of the kinds whose troubles people report in public: what each gives, or why it does not.

A folder a trouble, with made-up contents; what is right is computed here by another reader.
"""

import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import scipy.io
from helpers import tiny
from helpers.inputs import RIDGE, for_each, refused
from scipy.spatial.distance import squareform
from scipy.stats import spearmanr

from mlem_core import AnalysisSpec, compare, read_csv, run
from mlem_core.cli.commands import main
from mlem_core.figures.export import drawn_texts, missing_glyphs
from mlem_core.representations.arrays import from_file
from mlem_core.representations.layers import from_model
from mlem_core.representations.loading import open_model
from mlem_core.stimuli.reading.table import read_table

CASES = Path(__file__).parent
# The 48 sentences of nearly every file, and of most their first feature.
PLAIN = pd.read_csv(CASES / "nan-voxels" / "stimuli.csv")
NO_HEADER = ("no row has names of columns", "'column_1' is the sentence")
TABLES = {
    # the file: its features and what is said of it
    "blimp-jsonl/blimp.jsonl": (
        "one_prefix_word_good one_prefix_word_bad UID one_prefix_method",
        (
            "other texts too, in 'sentence_bad':",
            "a row of its own",
            "'one_prefix_prefix' has texts",
        ),
    ),
    "class-labels-as-integers/train.jsonl": (
        "label upos condition",
        ("'label', 'upos', 'condition' have few whole numbers", "3 is nearer to 2 than to 0"),
    ),
    "code-minus-99/codes.csv": ("freq plural", ("'-99' (row 5)", "1 to 7", "(--na)")),
    "cogs-no-header/gen.tsv": ("column_2 column_3", NO_HEADER),
    "comment-lines/commented.csv": ("plural rating", ("row 3 has the names",)),
    "csv-dates-for-ranges/ages.csv": (
        "age_range adverb",
        ("'4-Mar' is a date among values such as '5-6'", "rows 1, 2, 6"),
    ),
    "json-array/stimuli.json": ("plural adverb", ()),
    "no-header-names/nohead.csv": ("column_2 column_3", NO_HEADER),
    "pcibex/results.csv": (
        "column_1 column_2 column_4 column_5",
        ("no row has names of columns", "'column_3' is the sentence"),
    ),
    "qualtrics-likert/qualtrics.csv": (
        "grammatical context",
        ("Rows 2 to 3 are left out", "Qualtrics"),
    ),
    "quote-dialogue-tsv/dialogue.tsv": ("plural old", ("quotation marks are characters",)),
    "r-row-names-tsv/stimuli.tsv": ("cond rt", ("column 1, without a name",)),
    "r-write-table/stimuli.txt": ("cond rt", ("separated by spaces", "column 1, without a name")),
    "special-tokens-in-text/masked.csv": (
        "plural adverb",
        ("special tokens of models, '[MASK]' (row 1), '</s>' (row 1) and '<unk>' (row 1)",),
    ),
    "title-row-xlsx/title.xlsx": ("plural adverb", ("row 3 has the names",)),
    "xlsx-dates-for-ranges/ages.xlsx": (
        "syllables age_range score",
        ("'2026-03-04' is a date among values", "rows 1, 5, 9"),
    ),
}


# Models of which a folder has too much to be copied, and what is about all models.
ELSEWHERE = {
    "lora-beside-base": "representations/test_registry.py::test_a_folder_that_cannot_be_used",
    "model-gemma3-multimodal": "representations/test_architectures.py::test_the_language_model",
    "surprisal-of-the-word": "representations/test_weights.py::test_probabilities_of_all_words",
    "compare-index": "cases/test_cases.py::test_a_table_with_names_is_matched_by_them_in_python",
    "figure-labels": "cases/test_cases.py::test_labels_in_letters_without_a_font_are_named",
}


def test_every_case_is_tried():
    text = Path(__file__).read_text()
    folders = [path.name for path in CASES.iterdir() if path.is_dir() and path.name[0] != "_"]
    assert len(folders) + len(ELSEWHERE) == 35
    assert not [folder for folder in folders if f'"{folder}' not in text]
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}" in (CASES.parent / file).read_text()


def words_of(sentence):
    """The words of a sentence, without signs and special tokens."""
    return re.sub(r'[".]', "", sentence.lower()).replace("[mask] </s> <unk>", "").split()


@pytest.mark.parametrize("file", TABLES)
def test_a_table_has_its_48_sentences_and_what_is_doubtful_is_said(file, capsys):
    features, facts = TABLES[file]
    stimuli, table = read_csv(CASES / file), read_table(CASES / file)
    again = read_table(gzip.compress((CASES / file).read_bytes()), file, table.read_as)
    assert again.frame.equals(table.frame)
    for sentence, plain in zip(stimuli.sentences, PLAIN["sentence"], strict=True):
        words, expected = words_of(sentence), plain.split()
        assert words == expected[: len(words)] and len(words) >= len(expected) - 1
    assert [feature.name for feature in stimuli.features] == features.split()
    if {"plural", "adverb"} <= {*features.split()}:
        for name in ("plural", "adverb"):
            assert stimuli.values(name).tolist() == PLAIN[name].tolist()
    assert main(["lint", "--stimuli", str(CASES / file)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert not [fact for fact in facts if fact not in said], said


def test_a_treebank_with_another_ending_is_refused_with_its_ending():
    with refused("plain.txt", "CoNLL-U", ".conllu"):
        read_csv(CASES / "conllu-extension-txt" / "plain.txt")


def test_words_that_count_from_1():
    path = CASES / "word-index-from-1" / "from1.csv"
    frame = pd.read_csv(path)
    expected = [
        s.split()[n - 1] for s, n in zip(frame["sentence"], frame["word_index"], strict=True)
    ]
    assert read_csv(path, counts_from="1").words == expected
    (doubt,) = read_csv(path).doubts
    assert (doubt.option, doubt.values) == ("counts_from", ("1",))
    assert all(fact in doubt.sentence for fact in ("never 0", "'old'", "'the'", "--counts-from 1"))
    path = CASES / "provo-like" / "provo.csv"
    stimuli = read_csv(path)
    assert [word.strip(".").lower() for word in stimuli.words] == pd.read_csv(path)["Word"].tolist()
    assert any("'Word_Number' counts words from 1" in note for note in stimuli.notes)


@for_each(
    "file, language, expected",
    (
        "combining-marks/hindi.csv",
        "hi",
        {
            "word_length": [5, 2, 5, 2, 4, 4],
            "last_two_letters": ["की", "घर", "ान", "का", "शी", None],
            "frequency": [5.46, None, None, 7.25, None, None],
        },
    ),
    ("german-eszett/german.csv", "de", {"word_length": [6, 4, 4, 5, 5, 4]}),
    (
        "combining-marks/french-nfd.csv",
        "fr",
        {"word_length": [3, 6, 5, 5, 5, 7] * 4, "frequency": ([6.22] + [None] * 5) * 4},
    ),
)
def test_features_of_words_that_are_added(file, language, expected, tmp_path, capsys):
    pytest.importorskip("wordfreq")
    added, out = "word_length,last_two_letters,frequency", tmp_path / "out.csv"
    given = ["--add", added, "--language", language, "--out", str(out)]
    assert main(["stimuli", str(CASES / file), *given]) == 0
    found = pd.read_csv(out)
    for name, values in expected.items():
        for value, right in zip(found[name], values, strict=True):
            assert right is None or value == pytest.approx(right, abs=0.005)
    if "nfd" in file:
        out.unlink()
        assert main(["stimuli", str(CASES / file.replace("nfd", "nfc")), *given]) == 0
        assert pd.read_csv(out)[added.split(",")].equals(found[added.split(",")])


def by_item(frame):
    """The rows of a table in the order of the items it00 to it47."""
    return frame.sort_index().to_numpy()


def of_table(path):
    return [by_item(pd.read_csv(path, index_col=0))]


def of_npz(path):
    arrays = np.load(path)
    return [by_item(pd.DataFrame(arrays["IT"], arrays["stimuli"]))]


def of_voxels(path):
    arrays = np.load(path)
    return [arrays["IT"][:, ~np.isnan(arrays["IT"]).all(axis=0)], arrays["V4"]]


def of_blocks(path):
    arrays = safetensors.numpy.load_file(path)
    return [arrays[f"blocks.{number}.hook_resid_post"] for number in range(12)]


def of_meadows(path):
    return [squareform(scipy.io.loadmat(path)["rdmutv"][0])]


def without_diagonal(path):
    distances = np.load(path)["IT"]
    return [np.where(np.eye(48, dtype=bool), 0, distances)]


@for_each(
    "file, layers, facts",
    ("array-csv-with-names/x.csv", of_table, ("by name", "'item'")),
    ("npz-with-stimulus-names/x.npz", of_npz, ("by name", "'item'")),
    ("nan-voxels/brain.npz", of_voxels, ("5 of 40 units in IT",)),
    ("safetensors-layer-names/x.safetensors", of_blocks, ("order of the numbers",)),
    ("meadows-mat/ma_1D.mat", of_meadows, ("stimuli of ma_1D.mat holds text", "in the order")),
    ("rdm-cosine-float32/rdm.npz", without_diagonal, ()),
    ("rdm-nan-diagonal/rdm.npz", without_diagonal, ()),
    ("rdm-nan-pairs/rdm.npz", without_diagonal, ()),  # what is done with them: below
)
def test_layers_of_a_file(file, layers, facts):
    path = CASES / file
    stimuli = read_csv(path.with_name("stimuli.csv"))
    distances = layers in (of_meadows, without_diagonal)
    found, expected = from_file(path, stimuli, distances=distances), layers(path)
    assert found.layers == (*range(len(expected)),) and not found.left_out
    for layer, array in zip(found.layers, expected, strict=True):
        np.testing.assert_allclose(found[layer], array, rtol=1e-6)
    said = " ".join(found.notes)
    assert bool(said) == bool(facts) and not [fact for fact in facts if fact not in said], said


def test_pairs_that_an_rdm_lacks_are_left_out(store):
    """The similarity with another RDM is that of the 1,098 pairs that both have."""
    files = {name: CASES / f"rdm-{name}" / "rdm.npz" for name in ("nan-pairs", "nan-diagonal")}
    spec = AnalysisSpec(
        str(files["nan-pairs"].with_name("stimuli.csv")),
        representations={name: str(path) for name, path in files.items()},
        distance="precomputed",
        **RIDGE,
    )
    analysis = run(spec, store, progress=False)
    (notice,) = (one for one in analysis.notices if "1,128" in one)
    assert "30 of 1,128" in notice and "nan-pairs" in notice
    pairs = np.triu_indices(48, 1)
    a, b = (np.load(path)["IT"][pairs] for path in files.values())
    known = np.isfinite(a)
    rho = spearmanr(a[known], b[known]).statistic
    assert known.sum() == 1098 and analysis.rsa[0, 1] == pytest.approx(rho, abs=1e-9)


@pytest.fixture(scope="module")
def flaubert(tmp_path_factory):
    sizes = {"vocab_size": 300, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "pad_token_id": 2}
    folder = tmp_path_factory.mktemp("flaubert")
    tiny.save_class("FlaubertConfig", folder, "bytes", causal=False, **sizes)
    return open_model(str(folder), "cpu")


def test_an_encoder_of_one_word_in_three_contexts(flaubert, store):
    """FlauBERT masks its padding token by itself, which looks causal to who tries with it."""
    stimuli = read_csv(CASES / "flaubert-causal" / "stimuli.csv", counts_from="0")
    assert not flaubert.causal and [stimuli.words[row] for row in (0, 1, 3)] == ["dog"] * 3
    found = from_model(stimuli, flaubert, store)
    for layer in (1, 2, 3):
        for a, b in ((0, 1), (0, 3), (1, 3)):
            assert np.linalg.norm(found[layer][a] - found[layer][b]) > 0.001


def test_a_table_with_names_is_matched_by_them_in_python():
    rng = np.random.default_rng(0)
    names = [f"s{number:02d}" for number in range(60)]
    features = pd.DataFrame(
        {"kind": rng.choice(list("ab"), 60), "size": rng.normal(size=60)}, names
    )
    planted = np.c_[(features["kind"] == "a") * 3.0, features["size"]] @ rng.normal(size=(2, 20))
    rows = pd.DataFrame(planted + rng.normal(0, 0.2, (60, 20)), names)
    scores = [
        compare({"IT": table, "V4": rows}, features).analysis.results().scores["rho"]
        for table in (rows, rows.sample(frac=1, random_state=1))
    ]
    assert scores[0].tolist() == scores[1].tolist()
    assert scores[0].mean() == pytest.approx(0.971, abs=0.0005)
    with refused("no row named 's00'"):
        compare({"IT": rows.set_axis([f"t{number}" for number in range(60)])}, features)


def test_labels_in_letters_without_a_font_are_named(monkeypatch):
    rng = np.random.default_rng(0)
    labels = {"词性": ["名词", "动词"], "साधारण": ["मे", "है"], "ασπεκτ": ["ναι", "όχι"]}
    features = pd.DataFrame({name: rng.choice(values, 40) for name, values in labels.items()})
    rows = np.c_[features["词性"] == "名词", features["ασπεκτ"] == "ναι"] + rng.normal(size=(40, 2))
    figure = compare({"IT": rows}, features, estimator="ridge", values=()).plot.profiles()
    monkeypatch.setattr("mlem_core.figures.export._has_font", lambda letter: letter < "\u0900")
    said = missing_glyphs(drawn_texts(figure))
    assert all(letter in said for letter in "词性सधरण") and not {*"ασπεκτ"} & {*said}
    dockerfile = (CASES.parents[1] / "Dockerfile").read_text()
    assert "fonts-noto-core" in dockerfile and "fonts-noto-cjk" in dockerfile
