"""A feature erased from a layer: a network that uses one and merely carries another."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import RIDGE, refused

from mlem_core import AnalysisSpec, Store, erase, run, write_csv
from mlem_core.cli.commands import main
from mlem_core.extensions.erasure.erasers import leace, minimal_pairs
from mlem_core.extensions.erasure.measures import fold_ranks, held_out_rsa
from mlem_core.extensions.erasure.stage import control_reach, matched_subspaces
from mlem_core.figures.plots import FigureContext, FigureOptions, draw
from mlem_core.stimuli.datasets import load
from mlem_core.stimuli.stimulus_csv import from_frame
from mlem_core.tasks.followups import work

WORDS, NOISE = 120, 8


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A GPT-2 whose second block and whose output read `used` of a word, and not `carried`."""
    import tokenizers
    import torch
    import transformers

    folder, rng = tmp_path_factory.mktemp("network"), np.random.default_rng(0)
    used, carried = (np.where(rng.permutation(WORDS) % 2, 1.0, -1.0) for _ in range(2))
    width = 4 + 3 * NOISE
    config = transformers.GPT2Config(
        vocab_size=WORDS + 1, n_positions=8, n_embd=width, n_layer=3, n_head=1,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "ln_" not in name:
                weight.zero_()
        noise, far = rng.normal(size=(WORDS, NOISE)), np.full(WORDS, 4.0)
        of_words = np.column_stack((used, carried, far, -far, noise))
        model.transformer.wte.weight[1:, : 4 + NOISE] = torch.tensor(of_words).float()
        mlp = model.transformer.h[1].mlp
        for at in range(NOISE):  # what it knows of a word, where `used` opens the gate
            mlp.c_fc.weight[0, at], mlp.c_fc.weight[4 + at, at] = 3.0, 2.0
            mlp.c_proj.weight[at, 4 + NOISE + at] = 1.0
            mlp.c_proj.weight[at, 4 + 2 * NOISE + at] = -1.0
        model.lm_head.weight[1:, 0] = torch.tensor(6.0 * used).float()
    model.save_pretrained(folder)
    vocabulary = {"[UNK]": 0} | {f"w{at}": at + 1 for at in range(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]"
    ).save_pretrained(folder)
    rows = []
    for number in range(120):
        own = rng.choice(np.flatnonzero(used == (1 if number % 2 else -1)), 3, replace=False)
        sentence = " ".join(f"w{at}" for at in own)
        rows += [(sentence, i, used[at], carried[at]) for i, at in enumerate(own)]
    table = pd.DataFrame(rows, columns=["sentence", "word_index", "used", "carried"])
    table[["used", "carried"]] = np.where(table[["used", "carried"]] > 0, "yes", "no")
    write_csv(from_frame(table, "made"), folder / "made.csv")
    return folder


@pytest.mark.slow
def test_erasing_tells_what_is_used_from_what_is_carried(network, tmp_path, monkeypatch, capsys):
    of = {"stimuli": str(network / "made.csv"), "models": (str(network),), "layers": (1,)}
    store, spec = Store(tmp_path), AnalysisSpec(**of, **RIDGE)
    analysis = run(spec, store, progress=False)
    found = {f: erase(analysis, f, (str(network), 1), store) for f in ("used", "carried")}
    tables = {f: found[f].table.set_index(["measure", "layer"]).sort_index() for f in found}
    for name, table in tables.items():
        own = table[table["feature"] == name].loc["importance"]
        assert (own["before"] > 0.02).all() and (own["after"].abs() < 0.01).all()
    used, carried = tables["used"], tables["carried"]
    assert used.loc[[("rest", 2), ("surprisal", 3)], "beyond"].all()
    assert not carried.loc[["rest", "surprisal"], "beyond"].any()
    # Half of the words get the other value, so that half of the gates are those of other words.
    assert used.loc[("rest", 2), "interchanged"] < 0.7 < carried.loc[("rest", 2), "interchanged"]
    # Half of the words are as likely as before.
    bits = used.loc[("surprisal", 3)]
    assert bits["before"] == pytest.approx(np.log2(WORDS / 2), abs=0.2)
    assert bits["after"] - bits["before"] == pytest.approx(1, abs=0.25)
    bits = carried.loc[("surprisal", 3)]
    assert bits["after"] == pytest.approx(bits["before"], abs=0.01)
    said = {name: one.sentences()[0] for name, one in found.items()}
    assert "later layers beyond used itself" in said["used"] and "predictions" in said["used"]
    assert "neither" in said["carried"]
    # The command, the work in the background and the figure find it.
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path))
    where, out = f"{network}:1", tmp_path / "erase.csv"
    asked = ["--model", where, "--stimuli", of["stimuli"], "--estimator", "ridge"]
    assert main(["erase", "used", *asked, "--values", "none", "--out", str(out)]) == 0
    assert said["used"] in capsys.readouterr().out
    columns = "measure,model,layer,feature,before,after,lower,upper,control_lower,control_upper,"
    assert out.read_text().startswith(f"{columns}interchanged\n")
    options = {"erased": "used", "erased_at": where, "erased_tokens": "all", "other": ""}
    work("erase", analysis, options, store, tmp_path, print)
    drawing = FigureOptions(options=options)
    drawn = draw("erasure", FigureContext(analysis, analysis.select(), store, drawing=drawing))
    assert drawn.data.equals(found["used"].table)


def test_what_cannot_be_erased_is_refused(network, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path))
    spec = AnalysisSpec(stimuli=str(network / "made.csv"), models=(str(network),), **RIDGE)
    analysis = run(spec, Store(tmp_path), progress=False)
    with refused("layer 3", "0 to 2"):
        erase(analysis, "used", (str(network), 3), Store(tmp_path))
    with refused("feature", "nothing", "carried"):
        erase(analysis, "nothing", (str(network), 1), Store(tmp_path))
    asked = ["erase", "used", "--model", "mini-gpt2", "--stimuli", str(network / "made.csv")]
    assert main(asked) == 2 and "mini-gpt2:3" in capsys.readouterr().err


def test_forms_are_wrong_in_the_context_of_the_other():
    found = minimal_pairs(load("probing"), "number")
    n, words = len(found.rows), found.sentences.words
    pairs = dict(zip(found.sentences.sentences[:n], words[n:], strict=True))
    assert pairs["he sits"] == "sit" and pairs["they hesitate"] == "hesitates"
    assert minimal_pairs(load("probing"), "tense") is None


def test_rsa_is_that_of_its_definition():
    from scipy.spatial.distance import pdist
    from scipy.stats import spearmanr

    a, b = np.random.default_rng(0).normal(size=(2, 30, 4))
    b += a
    folds = np.zeros(30)
    ranks = [fold_ranks(states.astype(np.float32), folds, "euclidean") for states in (a, b)]
    assert held_out_rsa(*ranks)[0] == pytest.approx(spearmanr(pdist(a), pdist(b))[0], abs=1e-4)


def test_the_reach_of_controls_is_that_of_its_definition():
    changes, counts = np.random.default_rng(0).normal(size=(9, 3)), np.array([True, True, False])
    far = -np.inf
    for column in np.abs(changes[:, :2].T):
        far = max(far, *((column[1:] - np.mean(column)) / (np.std(column) + 1e-3)))
    for column, reach in zip(np.abs(changes.T), control_reach(changes, counts), strict=True):
        assert reach == pytest.approx(np.mean(column) + far * (np.std(column) + 1e-3))


@pytest.mark.parametrize("n_measures", [2, 6, 10])
@pytest.mark.parametrize("draw", ["normal", "exponential", "standard_cauchy"])
def test_what_is_like_its_controls_is_beyond_them_in_one_of_21_cases(n_measures, draw):
    rng, n, beyond = np.random.default_rng(n_measures), 1_500, 0
    for _ in range(n):
        changes = getattr(rng, draw)(size=(21, n_measures))
        reach = control_reach(changes, np.ones(n_measures, dtype=bool))
        beyond += bool((np.abs(changes[0]) > reach).any())
    assert 0.03 < beyond / n < 0.07


def test_random_subspaces_have_the_variance_of_the_feature_and_nothing_else_of_it():
    rng = np.random.default_rng(0)
    feature = np.eye(3)[rng.integers(3, size=300)]
    states = rng.normal(size=(300, 9)) * np.geomspace(3, 0.1, 9) @ rng.normal(size=(9, 9))
    for strength, reached in ((1.0, True), (30.0, False)):
        moved = states + strength * feature @ rng.normal(size=(3, 9))
        eraser = leace(moved, feature)
        left, target = eraser(moved), np.trace(np.cov(moved - eraser(moved), rowvar=False))
        most = np.linalg.eigvalsh(np.cov(left, rowvar=False))[-2:].sum()
        covariance = moved.T @ (feature - feature.mean(axis=0))
        for columns in matched_subspaces(moved, eraser, 3, rng):
            erased = leace(moved, columns, feature)(moved)
            removed = np.trace(np.cov(moved - erased, rowvar=False))
            assert removed == pytest.approx(min(target, most), rel=1e-4 if reached else 0.05)
            np.testing.assert_allclose(erased.T @ (feature - feature.mean(axis=0)), covariance)
    assert most < target
