"""The page of an analysis: what leaves with it, and that its numbers are those of the tables."""

import base64
import gzip
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each

from mlem_core.cli.commands import main
from mlem_core.figures.canvas import NO_NUMBER
from mlem_core.pairs.similarities import SIMILARITIES

SECRET = "elsewhere"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """What `analyze` writes of 60 images, from a file of which something is said."""
    folder, rng = tmp_path_factory.mktemp(SECRET), np.random.default_rng(0)
    table = pd.DataFrame({"stimulus": [f"/{SECRET}/{n:03d}.png" for n in range(60)]})
    table["size"], table["colour"] = rng.integers(0, 5, 60), rng.choice(["red", "blue"], 60)
    table.to_csv(folder / f"{SECRET}.csv", index=False, sep=";")
    signal = np.c_[table["size"], table["colour"] == "red"]
    layers = {f"layer_{k:02d}": signal + rng.normal(size=(60, 2)) for k in range(3)}
    np.savez(folder / "m.npz", **layers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLEM_CACHE", str(folder / "store"))
        stimuli, model = f"--stimuli={folder / SECRET}.csv", f"--representations=m={folder}/m.npz"
        choices = ["--estimator=ridge", "--values=none", "--folds=3", "--chance=20"]
        assert main(["analyze", stimuli, model, *choices, f"--out={folder / 'out'}"]) == 0
        yield folder / "out"


def page_of(out, *options):
    """The text of the page with its content, and the content."""
    path = out.with_name("page.html")
    path.unlink(missing_ok=True)
    assert main(["export", str(out), f"--html={path}", *options]) == 0
    page = path.read_text()
    (packed,) = re.findall(r'id="content"[^>]*>([A-Za-z0-9+/=]+)<', page)
    content = gzip.decompress(base64.b64decode(packed)).decode()
    return page + content, json.loads(content)


@for_each("more", *[[f"--similarity={name}"] for name in [*SIMILARITIES][:2]], ["--chance=20"])
def test_a_result_with_intervals_is_a_page(out, more):
    source, bounded = out.parent, out.with_name("bounded")
    stimuli, model = f"--stimuli={source / SECRET}.csv", f"--representations=m={source}/m.npz"
    choices = ["--estimator=ridge", "--values=none", "--folds=3", "--bootstrap=10", *more]
    assert main(["analyze", stimuli, model, *choices, f"--out={bounded}"]) == 0
    _, content = page_of(bounded)
    assert json.dumps(content["pairs"]).count('"sure", "text": "95 % CI') == 3


def test_nothing_of_the_stimuli_leaves_without_them(out):
    digest = json.loads((out / "manifest.json").read_text())["stimuli"]["digest"]
    text, content = page_of(out)
    assert f"({SECRET}.csv, SHA-256 {digest[:12]})" in content["methods"]
    assert content["canvas"]["sentences"][:2] == ["000.png", "001.png"]
    assert f"/{SECRET}" not in text and "separated by semicolons" in text
    text, content = page_of(out, "--without-stimuli")
    assert not [part for part in (SECRET, digest[:12], ".png", "semicolon") if part in text]
    assert "There were 60 stimuli, annotated with 2 features" in content["methods"]
    assert "<title>Stimuli</title>" in text


def test_the_numbers_are_those_of_the_tables(out):
    _, content = page_of(out)
    files = {path.name: path.read_text() for path in out.glob("*.csv")}
    shared = {*files} & {*content["tables"]}
    assert {"scores.csv", "importance.csv", "similarity_rsa.csv", "layer_map.csv"} <= shared
    assert all(content["tables"][name] == files[name] for name in shared)
    rsa = pd.read_csv(io.StringIO(files["similarity_rsa.csv"]), index_col=0).to_numpy()
    shown = np.frombuffer(base64.b64decode(content["canvas"]["similarity"][0]["values"]), np.int8)
    assert NO_NUMBER not in shown
    np.testing.assert_array_equal(shown, np.round(100 * rsa[np.triu_indices(3)]))
    parts = pd.read_csv(io.StringIO(content["tables"]["why_layers.csv"]))
    for pair, why in content["pairs"].items():
        a, b = map(int, pair.split())
        assert why["total"] == pytest.approx(rsa[a, b], abs=5e-5)
        of_pair = parts[(parts["layer_a"] == a) & (parts["layer_b"] == b)].set_index("term")
        assert len(of_pair) == 3
        for term in why["terms"]:
            assert term["value"] == pytest.approx(of_pair.loc[term["name"], "value"], abs=5e-5)
