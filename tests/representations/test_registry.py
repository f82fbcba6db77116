"""Models by their names: what is known of them, fetched, and refused."""

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import tiny
from helpers.inputs import for_each, refused
from helpers.repository import ROOT

from mlem_core.base.errors import InputError
from mlem_core.representations import forward, model_paths, registry
from mlem_core.representations.loading import open_model
from mlem_core.representations.model_paths import unread_weights
from mlem_core.representations.registry import ModelUnavailable, Shape, check_availability, packaged

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(bert, tmp_path):
    """A sound model folder to spoil."""
    return Path(shutil.copytree(bert, tmp_path / "model"))


def test_known_models_are_listed_without_torch():
    code = (
        "import sys; from mlem_core.representations import registry;"
        "registry.identity('minilm');"
        "names = [n for n in registry.packaged() if registry.MODELS[n].path()];"
        "print(names, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"},
    )
    assert done.stdout.strip() == f"{list(registry.packaged())} False", done.stderr


@pytest.mark.slow
def test_packaged_decoder_has_learnt_english():
    loaded = tiny.opened("smollm2")
    assert (loaded.n_layers, loaded.note) == (30, "4-bit weights")
    # Its embeddings are also its output layer: the weights must make it go on in English.
    import torch

    ids = loaded.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    last = forward.hidden_states(loaded.model, loaded.n_layers, ids)[-1][0, -1]
    likely = torch.topk(loaded.model.get_input_embeddings().weight @ last, 5).indices
    assert " Paris" in [loaded.tokenizer.decode([token]) for token in likely]


@pytest.fixture
def fresh_hub(monkeypatch, tmp_path):
    """An empty cache of the hub's files, and no memory of earlier answers."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model_paths._fetched.cache_clear()
    yield
    model_paths._fetched.cache_clear()


@pytest.fixture
def no_hub(fresh_hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def test_no_network_is_told_at_once(no_hub):
    begun = time.monotonic()
    for name in registry.hub_models():
        with refused("hub cannot be reached", registry.packaged()[-1], by=ModelUnavailable):
            open_model(name)
    with refused("bert-base-uncased", by=ModelUnavailable):
        open_model("bert-base-uncasd")
    assert time.monotonic() - begun < 5


COMMIT = "0123456789abcdef0123456789abcdef01234567"
REQUEST = COMMIT[::-1]  # of a pull request


@pytest.fixture
def served(bert, fresh_hub, monkeypatch, tmp_path):
    """The hub's interface, as far as it is used, on this machine: one model, `someone/bert`."""
    public = Path(shutil.copytree(bert, tmp_path / "public"))
    (public / "pytorch_model.bin").write_bytes(b"not to be fetched")
    adapter = tmp_path / "lora"  # of another base
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(bytes(64))
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "else/where"}')
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, status, body, headers):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_GET(self):
            asked.append(self.path)
            path = self.path.partition("?")[0]
            kind = {"Content-Type": "application/json"}
            # `someone/pickled` has safetensors in a pull request only.
            own = path
            for other in ("someone/pickled", "someone/lora"):
                path = path.replace(other, "someone/bert")
            commit = REQUEST if "/refs%" in path or REQUEST in path else COMMIT
            lacks = WEIGHTS if "someone/pickled" in own and commit == COMMIT else ""
            files = [file for file in public.iterdir() if file.name != lacks]
            if "someone/lora" in own:
                files = list(adapter.iterdir())
            if path.endswith("/refs"):
                refs = [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}]
                requests = [
                    {**refs[0], "name": f"refs/pr/{n}", "ref": f"refs/pr/{n}"} for n in (2, 17)
                ]
                found = {"branches": refs, "converts": [], "tags": [], "pullRequests": requests}
                self.answer(200, json.dumps(found).encode(), kind)
            elif path.startswith("/api/models/someone/bert/tree"):
                tree = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40}
                    for f in files
                ]
                self.answer(200, json.dumps(tree).encode(), kind)
            elif path.startswith("/api/models/someone/bert/revision/step2000"):
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            elif path.startswith("/api/models/someone/bert"):
                siblings = [{"rfilename": file.name} for file in files]
                info = {"id": "someone/bert", "sha": commit, "siblings": siblings, "tags": []}
                self.answer(200, json.dumps(info).encode(), kind)
            elif path.startswith("/api/models/someone/own"):
                info = {"id": "someone/own", "sha": COMMIT, "config": {"model_type": "rwkv7"}}
                self.answer(200, json.dumps(info).encode(), kind)
            elif path.startswith("/api/models/someone/gated"):
                self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
            elif path.startswith(f"/someone/bert/resolve/{commit}/"):
                folder = adapter if "someone/lora" in own else public
                body = (folder / path.rpartition("/")[2]).read_bytes()
                etag = f'"{hashlib.sha256(body).hexdigest()}"'
                self.answer(200, body, {"ETag": etag, "X-Repo-Commit": commit})
            else:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield asked
    server.shutdown()
    server.server_close()


def test_a_hub_model_is_fetched_once_and_then_needs_no_network(served, monkeypatch, bert):
    loaded = open_model("someone/bert", "cpu")
    assert (loaded.identity, loaded.revision, loaded.n_layers) == (COMMIT, COMMIT, 3)
    assert any("model.safetensors" in path for path in served)
    assert not any("pytorch_model.bin" in path for path in served)
    served.clear()
    model_paths._fetched.cache_clear()
    assert registry.identity("someone/bert") == COMMIT
    # All that is asked where the files are there.
    assert served == ["/api/models/someone/bert", "/api/models/someone/bert/revision/main"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert registry.identity("someone/bert") == COMMIT
    assert open_model("someone/bert", "cpu").n_layers == 3


def test_an_adapter_of_the_hub_is_fetched(served, bert):
    name = f"{bert}+someone/lora"
    assert check_availability(name).where == "hub"
    now = registry.identity_now(name)
    files = registry.locate(name)
    assert files.note == "with the adapter someone/lora, which was trained on else/where"
    assert now == files.identity != registry.identity(str(bert))
    assert sorted(file.name for file in files.adapter.iterdir()) == list(registry.ADAPTER)
    with refused("adapter_config.json", "BASE+ADAPTER"):
        open_model("someone/lora", "cpu")
    with refused("'someone/bert'", "a folder, or an id", "adapter_model.safetensors"):
        open_model(f"{bert}+someone/bert", "cpu")


def test_a_revision_is_fetched_by_its_name(served, monkeypatch):
    name = "someone/bert@step1000"
    loaded = open_model(name, "cpu")
    assert (loaded.name, loaded.identity, loaded.n_layers) == (name, COMMIT, 3)
    assert "/api/models/someone/bert/revision/step1000" in served
    # Its control is the architecture of that revision.
    assert registry.locate(f"{name}@random2").seed == 2
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert registry.identity(name) == COMMIT
    with refused("step3", by=ModelUnavailable):
        registry.identity("someone/bert@step3")


@for_each(
    "name, facts, by",
    ("someone/bert@step2000", ("'someone/bert'", "'step2000'"), InputError),
    ("bert-base-uncasd", ("bert-base-uncased",), InputError),
    ("someone/gated", ("terms",), ModelUnavailable),
    ("someone/own", ("'someone/own'", "'rwkv7'", "never done", "--representations"), InputError),
)
def test_what_the_hub_does_not_have_or_give(served, name, facts, by):
    with refused(*facts, by=by):
        registry.identity(name)
    if "@" in name:
        assert check_availability(name).where == "nowhere"


def test_weights_that_are_pickled_are_refused_with_the_revision_that_has_others(
    served, monkeypatch
):
    for _ in range(2):
        offer = check_availability("someone/pickled")  # before anything is fetched, and after
        assert offer.where == "nowhere" and "name it someone/pickled@refs/pr/17" in offer.problem
        with refused("no safetensors", "someone/pickled@refs/pr/17", "can run code"):
            open_model("someone/pickled", "cpu")
    assert open_model("someone/pickled@refs/pr/17", "cpu").n_layers == 3
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with refused("no safetensors", "someone/pickled@refs/pr/N"):
        open_model("someone/pickled", "cpu")


def test_a_folder_changes_its_identity_with_its_weights(folder, bert):
    before = registry.identity(str(folder))
    assert before == registry.identity(str(bert))  # content, not place
    tiny.save("bert", folder, num_hidden_layers=2)
    assert registry.identity(str(folder)) != before


def written(contents):
    """These files with other contents; of None, none."""

    def spoil(folder):
        for name, content in contents.items():
            (folder / name).unlink(missing_ok=True)
            if content is not None:
                (folder / name).write_bytes(content)

    return spoil


def changed(**changes):
    def spoil(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        (folder / "code.py").write_text("raise SystemExit('this must not run')")

    return spoil


def truncated(folder):
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size // 2)


def in_a_subfolder(folder):
    """As sentence-transformers, and training, keep the model."""
    (folder / "0_Transformer").mkdir()
    (folder / WEIGHTS).rename(folder / "0_Transformer" / WEIGHTS)
    (folder / "config.json").rename(folder / "0_Transformer" / "config.json")


def one_shard_of_two(folder):
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    (folder / WEIGHTS).rename(folder / shards[0])
    index = {"metadata": {}, "weight_map": dict(zip("ab", shards, strict=True))}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


def larger_vocabulary(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["enormous"] = 300
    (folder / "tokenizer.json").write_text(json.dumps(content))


@for_each(
    "spoil, facts",
    (written({WEIGHTS: None, "pytorch_model.bin": b""}), ("pytorch_model.bin", "safetensors")),
    (written({WEIGHTS: None}), ("no weights",)),
    (
        written({"adapter_model.safetensors": b"", "adapter_config.json": b"{}"}),
        ("adapter_config.json", "not applied", "merge_and_unload"),
    ),
    (written({"adapter_model.bin": b"", WEIGHTS: None}), ("adapter_model.bin", "merge")),
    (written({"adapter_model.bin": b"", "config.json": None}), ("adapter_model.bin", "merge")),
    (written({"pytorch_lora.bin": b""}), ("pytorch_lora.bin", "not applied", "BASE+ADAPTER")),
    (written({"extra.safetensors": b""}), ("extra.safetensors, which nothing reads",)),
    (
        written({"consolidated.safetensors": b"", WEIGHTS: None}),
        ("consolidated.safetensors, which nothing reads", WEIGHTS),
    ),
    (written({"config.json": None}), ("no config.json",)),
    (written({"config.json": b"{not json"}), ("config.json", "not valid JSON")),
    (
        changed(model_type="own", auto_map={"AutoModel": "code.Model"}),
        ("'own'", "never done", "--representations"),
    ),
    (truncated, ("file not fully covered",)),
    (in_a_subfolder, ("no config.json: name a folder in it that has one", "0_Transformer'")),
    (one_shard_of_two, ("model-00002-of-00002.safetensors",)),
    (changed(num_hidden_layers=4), ("16 of the tensors", "encoder.layer.3")),
    (changed(hidden_size=32), ("shapes", "config.json")),
    (written(dict.fromkeys(["tokenizer.json", "tokenizer_config.json"])), ("no tokenizer",)),
    (larger_vocabulary, ("another model's", "token 300", "300 tokens")),
    (written({WEIGHTS: None, "a.gguf": b"GGUF", "b.gguf": b"GGUF"}), ("2 GGUF files",)),
    (written({WEIGHTS: None, "a.gguf": b"not one"}), ("a.gguf", "no GGUF file")),
)
def test_a_folder_that_cannot_be_used_is_told_in_a_sentence(folder, spoil, facts):
    spoil(folder)
    with refused(*facts):
        open_model(str(folder), "cpu")


def test_a_copy_of_the_weights_for_another_program_may_lie_beside_them(folder):
    (folder / "consolidated.safetensors").write_bytes(b"")
    assert open_model(str(folder), "cpu").n_layers == 3


def test_newer_weights_that_are_not_read_are_told(bert, tmp_path):
    folder = Path(shutil.copytree(bert, tmp_path / "bert"))
    assert unread_weights(str(folder)) == unread_weights("minilm") == []
    for name, seconds, told in (
        ("optimizer.pt", 9, 0),
        ("pytorch_model.bin", -9, 0),
        ("pytorch_model.bin", 9, 1),
    ):
        (folder / name).write_bytes(b"")
        when = (folder / WEIGHTS).stat().st_mtime + seconds
        os.utime(folder / name, (when, when))
        assert len(unread_weights(str(folder))) == told
    assert "pytorch_model.bin, newer" in unread_weights(str(folder))[0]


def test_the_longest_input(bert, tmp_path):
    assert open_model(str(bert), "cpu").max_tokens == 64
    assert open_model(str(tiny.save("mamba", tmp_path / "mamba")), "cpu").max_tokens == 64
    # RoBERTa counts its positions from behind the padding.
    for padding, positions, longest in ((0, 66, 64), (3, 40, 36)):
        sizes = {"max_position_embeddings": positions, "pad_token_id": padding}
        folder = tiny.save("roberta", tmp_path / f"roberta{padding}", **sizes)
        assert open_model(str(folder), "cpu").max_tokens == longest


@pytest.mark.parametrize("name", packaged())
def test_what_comes_with_the_program_is_here(name):
    offer = check_availability(name)
    assert (offer.where, offer.n_bytes, offer.problem) == ("here", 0, "")
    assert check_availability(f"{name}@random").shape == offer.shape


def test_what_cannot_be_reached_may_be_there_later(no_hub):
    offer = check_availability("gpt2")
    assert (offer.where, offer.n_bytes, offer.shape) == ("away", 548_000_000, Shape(12, 768))
    assert check_availability("EleutherAI/pythia-70m@step1000").where == "away"


@for_each(
    "name, says",
    ("minlm", "did you mean minilm"),
    ("a b", "unknown model 'a b'"),
    ("/nowhere/model", "there is no model folder"),
    ("~/nowhere", "no model folder"),
    ("", "''"),
    ("minilm@step3", "comes with the program, in one revision"),
    ("mini-gpt2@step3", "without 'step3': the choices behind its name are "),
    ("mini-gpt2@main", "@step512"),
    ("gpt2@", "names no revision"),
)
def test_what_is_nowhere_is_a_sentence(no_hub, name, says):
    offer = check_availability(name)
    assert offer.where == "nowhere" and says in offer.problem
