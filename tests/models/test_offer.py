"""What is known of a model by its name, before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlem_core.models import hub
from mlem_core.models.offer import Shape, look_up, shape_of
from mlem_core.models.registry import packaged

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    hub._answers.cache_clear()
    hub._fetched.cache_clear()


@pytest.mark.parametrize("name", packaged())
def test_what_comes_with_the_program_is_here(name):
    offer = look_up(name)
    assert (offer.where, offer.n_bytes, offer.problem) == ("here", 0, "")
    assert offer.label
    # As the label says: "..., 6 layers".
    assert offer.shape is not None and f"{offer.shape.blocks} layers" in offer.label
    assert look_up(f"{name}@random").shape == offer.shape


def test_a_step_of_the_training_of_a_small_model_is_here(no_hub):
    offer, whole = look_up("mini-gpt2@step512"), look_up("mini-gpt2")
    assert (offer.where, offer.shape, offer.label) == ("here", whole.shape, whole.label)
    assert look_up("mini-gpt2@step512@random").where == "here"


def test_what_cannot_be_reached_may_be_there_later(no_hub):
    offer = look_up("gpt2")
    assert (offer.where, offer.n_bytes, offer.shape) == ("away", 548_000_000, Shape(12, 768))
    assert look_up("EleutherAI/pythia-70m@step1000").where == "away"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("minlm", "did you mean minilm"),
        ("a b", "unknown model 'a b'"),
        ("/nowhere/model", "there is no model folder"),
        ("minilm@step3", "comes with the program, in one revision"),
        ("mini-gpt2@step3", "without 'step3': the choices behind its name are "),
        ("mini-gpt2@seed0", "without 'seed0': the choices"),
        ("mini-gpt2@main", "@step512"),
        ("gpt2@", "names no revision"),
    ],
)
def test_what_is_nowhere_is_a_sentence(no_hub, name, says):
    offer = look_up(name)
    assert offer.where == "nowhere" and says in offer.problem


def test_a_folder_without_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert "has no weights" in look_up(str(tmp_path)).problem


def test_shapes_of_configurations():
    assert shape_of({"n_layer": 3, "n_embd": 8, "model_type": "gpt2"}) == Shape(3, 8)
    mamba = {"num_hidden_layers": 2, "hidden_size": 4, "model_type": "mamba2"}
    assert shape_of(mamba) == Shape(2, 4, recurrent=True)
    assert shape_of({"model_type": "t5"}) is None


def test_torch_stays_out():
    code = (
        "import sys; from mlem_core.models.offer import look_up; look_up('mini-bert');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
