"""Weights: from a checkpoint's names and shapes to our model, or drawn at random for tests and lessons.

The layers of the Llama family share their names; we join q,k,v and gate,up into one matrix each, because
one large product is faster than three small ones. Every tensor of the file must be used and every
parameter must be found: a leftover or a gap is an error with its name, never a random init.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minicb.checkpoint import Tokenizer, find_checkpoint, read_config, weight_files
from minicb.model import Model, ModelConfig, RopeConfig

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(name: str = "auto") -> torch.device:
    """The device to run on. "auto": a CUDA GPU if there is one, else Apple's MPS, else the CPU."""
    if name != "auto":
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {name!r} is not available here: {str(error).splitlines()[0]}") from error
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """For "auto": float32 on a CPU, bfloat16 where the GPU really has it, else float16."""
    if name == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
        return torch.float32 if device.type == "cpu" else torch.float16
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is not one of auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def load(
    name_or_path: str | os.PathLike[str] | None = None, device: str = "auto", dtype: str = "auto"
) -> tuple[Model, Tokenizer]:
    """A model and its tokenizer: the packaged one (None), a local folder, or a hub name.

    Raises ValueError in one line for an unknown model, an unsupported architecture, a damaged file.
    """
    folder = find_checkpoint(name_or_path)
    config, tokenizer = read_config(folder), Tokenizer.load(folder)
    config = replace(config, end_ids=config.end_ids | tokenizer.end_ids)
    target = pick_device(device)
    return build(config, Tensors(folder), target, pick_dtype(dtype, target)), tokenizer


class Tensors(Mapping[str, Tensor]):
    """Every tensor of the folder's safetensors files, by its name. Each is read when it is asked for, and not kept."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, Path] = {}
        for file in weight_files(folder):
            with self.opened(file) as content:
                self.files.update(dict.fromkeys(content.keys(), file))

    @contextmanager
    def opened(self, file: Path) -> Iterator[Any]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(file), framework="pt") as content:
                yield content
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is damaged or cut off ({error}): delete its folder and fetch it again") from error

    def __getitem__(self, name: str) -> Tensor:
        with self.opened(self.files[name]) as content:
            tensor: Tensor = content.get_tensor(name)
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def checkpoint_names(config: ModelConfig) -> Iterator[tuple[str, list[str]]]:
    """Our parameter names, each with the checkpoint's names that are joined row-wise to make it."""
    yield "embed.weight", ["model.embed_tokens.weight"]
    yield "norm.weight", ["model.norm.weight"]
    if not config.tied_head:
        yield "head.weight", ["lm_head.weight"]
    for i in range(config.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        yield ours + "attention_norm.weight", [theirs + "input_layernorm.weight"]
        yield ours + "mlp_norm.weight", [theirs + "post_attention_layernorm.weight"]
        if config.qk_norm:
            yield ours + "attention.q_norm.weight", [theirs + "self_attn.q_norm.weight"]
            yield ours + "attention.k_norm.weight", [theirs + "self_attn.k_norm.weight"]
        for name, parts, bias in (
            ("attention.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), config.qkv_bias),
            ("attention.out", ("self_attn.o_proj",), config.output_bias),
            ("mlp.gate_up", ("mlp.gate_proj", "mlp.up_proj"), config.mlp_bias),
            ("mlp.down", ("mlp.down_proj",), config.mlp_bias),
        ):
            for kind in ("weight", "bias") if bias else ("weight",):
                yield f"{ours}{name}.{kind}", [f"{theirs}{part}.{kind}" for part in parts]


def build(config: ModelConfig, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype) -> Model:
    """A model from tensors under their checkpoint names.

    Raises ValueError that names a missing, left-over or misshapen tensor.
    """
    left = set(tensors)
    if config.tied_head and "lm_head.weight" in left:
        # A file with a head of its own is believed: tying it to the embedding would be silently wrong.
        head = tensors["lm_head.weight"]
        if torch.equal(head, tensors.get("model.embed_tokens.weight", head)):
            left.remove("lm_head.weight")
        else:
            config = replace(config, tied_head=False)
    with torch.device("meta"):  # no memory and no random numbers for parameters that are replaced at once
        model = Model(config)
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    state: dict[str, Tensor] = {}
    for ours, theirs in checkpoint_names(config):
        for name in theirs:
            if name not in left:
                raise ValueError(f"the checkpoint lacks {name}")
            left.remove(name)
        parts = [tensors[name] for name in theirs]
        shapes = split_shape(config, wanted[ours], len(parts))
        for name, part, shape in zip(theirs, parts, shapes, strict=True):
            if part.shape != shape:
                raise ValueError(f"{name} has shape {tuple(part.shape)}, the config asks for {shape}")
        state[ours] = torch.cat([part.to(device, dtype) for part in parts])
    left = {name for name in left if not name.endswith("rotary_emb.inv_freq")}  # derived, not learnt
    if left:
        raise ValueError(f"the checkpoint holds {min(left)}, which this architecture does not use")
    if config.tied_head:
        state["head.weight"] = state["embed.weight"]
    model.load_state_dict(state, assign=True)
    if config.tied_head:
        model.head.weight = model.embed.weight
    return model.requires_grad_(False).eval()


def split_shape(config: ModelConfig, joined: tuple[int, ...], num_parts: int) -> list[tuple[int, ...]]:
    """The shapes of the parts that are joined row-wise: one, gate and up, or q, k and v."""
    rows = [joined[0] // num_parts] * num_parts
    if num_parts == 3:  # checked one by one: a k too long and a v too short would join without complaint
        rows = [heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)]
    return [(n, *joined[1:]) for n in rows]


def random_model(
    config: ModelConfig | None = None, *, seed: int = 0, std: float = 0.3, device: str = "cpu", dtype: str = "float32"
) -> Model:
    """A tiny model with LARGE random weights: a wrong mask or position moves its logits far, not by a hair."""
    config = config or tiny_config()
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        model = Model(config)
    model.to_empty(device=device).to(DTYPES[dtype])
    if config.tied_head:
        model.head.weight = model.embed.weight
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std
            parameter.copy_(values + 1 if "norm" in name else values)
    return model.requires_grad_(False).eval()


def tiny_config(
    *, layers: int = 2, heads: int = 6, kv_heads: int = 2, head_dim: int = 8, vocab: int = 64, max_position: int = 512
) -> ModelConfig:
    """A decoder small enough for a test to run hundreds of times, with grouped heads like the real one."""
    return ModelConfig(
        vocab_size=vocab,
        hidden_size=heads * head_dim,
        intermediate_size=2 * heads * head_dim,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rope=RopeConfig(theta=10_000.0),
        max_position_embeddings=max_position,
    )
