"""Checkpoints: every number of a file arrives where it belongs, and every fault of a file is one clear line.

GGUF files here are written from known weights, in the row order that such files have. Nothing here needs a network;
the tests of "offline" deny one and note every attempt.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from oracle import hf_model, logits_of, ours, random_ids, real_checkpoint
from torch import Tensor

from minicb.checkpoint import (
    Tokenizer,
    adapt_config,
    convert_gguf,
    find_checkpoint,
    flat_ids,
    packaged_model_folder,
    weight_files,
)
from minicb.llm import LLM
from minicb.model import Model
from minicb.sampling import SamplingParams
from minicb.weights import Tensors, build, load

CPU = torch.device("cpu")
IDS = random_ids(random.Random(0), 40)


def weights_of(hf: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in hf.state_dict().items()}


def build_from(hf: Any, tensors: Mapping[str, Tensor]) -> Any:
    return build(adapt_config(hf.config), tensors, CPU, torch.float32)


# ---- GGUF: rows of q and k come interleaved in files of the llama kind, and in no others


def interleave(rows: Tensor, heads: int) -> Tensor:
    """As llama.cpp stores q and k: within each head, row i of the first half beside row i of the second."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers.": "blk.",
}


def write_gguf(path: Path, hf: Any, tensors: Mapping[str, Tensor]) -> None:
    """A float32 GGUF file of this model, with a tokenizer of as many tokens as it has."""
    config, kind = hf.config, hf.config.model_type
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(8)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(config.vocab_size)
    letters = [chr(ord("!") + i) for i in range(config.vocab_size - 3)] + ["AB"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<s>", "</s>", *letters])
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * len(letters))
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, tensor in tensors.items():
        for theirs, short in GGUF_NAMES.items():
            name = name.replace(theirs, short)
        if kind == "llama" and ("attn_q" in name or "attn_k" in name):
            heads = config.num_attention_heads if "attn_q" in name else config.num_key_value_heads
            tensor = interleave(tensor, heads)
        writer.add_tensor(name, tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(tmp_path: Path, hf: Any, tensors: Mapping[str, Tensor] | None = None) -> Path:
    """Write the model as GGUF and convert that; returns the new folder."""
    tensors = dict(tensors or weights_of(hf))
    if hf.config.tie_word_embeddings and tensors.get("lm_head.weight") is not None:
        del tensors["lm_head.weight"]
    write_gguf(tmp_path / "tiny.gguf", hf, tensors)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "model")
    return tmp_path / "model"


SHAPES = {
    "9 heads on 3": {},
    "8 heads on 4": {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_every_tensor_of_a_gguf_file_comes_out_as_it_was_trained(
    kind: str, shape: dict[str, Any], tmp_path: Path
) -> None:
    """With 9 heads on 3 a wrong head count for k breaks a reshape; with 8 on 4 only the values tell."""
    hf = hf_model(kind, **shape)
    loaded, original = Tensors(convert(tmp_path, hf)), weights_of(hf)
    assert set(loaded) == set(original) - {"lm_head.weight"}
    assert [name for name, tensor in loaded.items() if not torch.equal(tensor, original[name])] == []


def test_the_test_file_really_holds_interleaved_rows(tmp_path: Path) -> None:
    hf = hf_model("llama")
    write_gguf(tmp_path / "tiny.gguf", hf, weights_of(hf))
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "tiny.gguf").tensors}
    k = weights_of(hf)["model.layers.0.self_attn.k_proj.weight"]
    assert not np.array_equal(stored["blk.0.attn_k.weight"], k.numpy())
    assert np.array_equal(np.sort(stored["blk.0.attn_k.weight"], axis=0), np.sort(k.numpy(), axis=0))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_converted_gguf_file_computes_what_the_original_computes(kind: str, tmp_path: Path) -> None:
    hf = hf_model(kind, rope_parameters={"rope_type": "default", "rope_theta": 5e4}, rms_norm_eps=1e-3)
    model, tokenizer = load(convert(tmp_path, hf), "cpu", "float32")
    torch.testing.assert_close(logits_of(model, IDS), logits_of(ours(hf), IDS))
    assert tokenizer.decode(tokenizer.encode("ABC")) == "ABC"
    assert model.config.end_ids == {1}


def test_a_gguf_file_without_a_head_uses_the_embedding_itself(tmp_path: Path) -> None:
    model, _ = load(convert(tmp_path, hf_model("llama")), "cpu", "float32")
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()


def test_a_gguf_file_with_a_head_of_its_own_uses_that(tmp_path: Path) -> None:
    hf = hf_model("llama", tie_word_embeddings=False)
    model, _ = load(convert(tmp_path, hf), "cpu", "float32")
    assert torch.equal(model.head.weight, hf.lm_head.weight)
    assert not torch.equal(model.head.weight, model.embed.weight)


# ---- tensors: each is used, each is found, each has its shape


def test_a_tied_head_is_the_embedding_and_takes_no_memory_of_its_own() -> None:
    model = ours(hf_model("llama"))
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()


def test_a_head_in_the_file_is_believed_even_if_the_config_says_tied() -> None:
    hf = hf_model("llama")
    head = torch.randn(64, 72)
    model = build_from(hf, {**weights_of(hf), "lm_head.weight": head})
    assert torch.equal(model.head.weight, head)


def test_a_head_in_the_file_that_repeats_the_embedding_stays_tied() -> None:
    hf = hf_model("llama")
    tensors = weights_of(hf)
    model = build_from(hf, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()


MISSING = (
    "model.embed_tokens.weight",
    "model.norm.weight",
    "lm_head.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.1.input_layernorm.weight",
)


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_tensor_is_named(name: str) -> None:
    hf = hf_model("llama", tie_word_embeddings=False)
    tensors = weights_of(hf)
    del tensors[name]
    with pytest.raises(ValueError, match=f"^the checkpoint lacks {name}$"):
        build_from(hf, tensors)


def test_a_missing_embedding_is_named_even_if_there_is_a_head_and_the_config_says_tied() -> None:
    hf = hf_model("llama")
    tensors = weights_of(hf)
    del tensors["model.embed_tokens.weight"]
    with pytest.raises(ValueError, match=r"lacks model\.embed_tokens\.weight"):
        build_from(hf, tensors)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_norm.weight", "model.layers.2.mlp.up_proj.weight", "x"])
def test_a_left_over_tensor_is_named(name: str) -> None:
    hf = hf_model("llama")
    with pytest.raises(ValueError, match=f"the checkpoint holds {name}, which this architecture does not use"):
        build_from(hf, {**weights_of(hf), name: torch.zeros(1)})


def test_stored_rope_frequencies_are_derived_and_so_no_left_over() -> None:
    hf = hf_model("llama")
    build_from(hf, {**weights_of(hf), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})


MISSHAPEN = {
    "model.embed_tokens.weight": (65, 72),
    "model.norm.weight": (71,),
    "model.layers.0.self_attn.q_proj.weight": (64, 72),
    "model.layers.0.self_attn.k_proj.weight": (24, 71),
    "model.layers.0.mlp.down_proj.weight": (96, 72),
    "model.layers.1.mlp.up_proj.weight": (95, 72),
}


@pytest.mark.parametrize(("name", "shape"), MISSHAPEN.items())
def test_a_misshapen_tensor_is_named_with_both_shapes(name: str, shape: tuple[int, ...]) -> None:
    hf = hf_model("llama")
    tensors = weights_of(hf)
    wanted = tuple(tensors[name].shape)
    with pytest.raises(ValueError, match=re.escape(f"{name} has shape {shape}, the config asks for {wanted}")):
        build_from(hf, {**tensors, name: torch.zeros(shape)})


def test_a_k_too_long_beside_a_v_too_short_is_noticed() -> None:
    """Joined they would have the right number of rows, and the wrong ones."""
    hf = hf_model("llama")
    longer, shorter = (f"model.layers.0.self_attn.{name}_proj.weight" for name in "kv")
    with pytest.raises(ValueError, match=r"k_proj\.weight has shape \(32, 72\), the config asks for \(24, 72\)"):
        build_from(hf, {**weights_of(hf), longer: torch.zeros(32, 72), shorter: torch.zeros(16, 72)})


def test_a_checkpoint_of_another_type_is_converted_to_the_wanted_one() -> None:
    hf = hf_model("llama")
    half = {name: tensor.bfloat16() for name, tensor in weights_of(hf).items()}
    model = build(adapt_config(hf.config), half, CPU, torch.float32)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.embed.weight, half["model.embed_tokens.weight"].float())


# ---- folders: what is missing or damaged is one clear line


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole small checkpoint folder, with the real tokenizer."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    hf_model("llama", vocab_size=49_152).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(real_checkpoint() / name, folder / name)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return shutil.copytree(saved, tmp_path / "model ü")


def complaint(name: Any) -> str:
    """The one line with which `load` refuses this model."""
    with pytest.raises(ValueError, match=r"\A[^\n]{20,400}\Z") as error:
        load(name, "cpu", "float32")
    return str(error.value)


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def test_a_whole_folder_loads(folder: Path) -> None:
    model, tokenizer = load(folder, "cpu", "float32")
    assert model.config.vocab_size == 49_152
    assert tokenizer.decode(tokenizer.encode("Hello")) == "Hello"


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_a_cut_off_weight_file_is_one_clear_line(kept: float, folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole))])
    line = complaint(folder)
    assert str(file) in line
    assert "damaged or cut off" in line


def test_a_folder_without_weights_says_which_format_it_looked_for(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "model.safetensors is missing: minicb reads weights from safetensors files only" in complaint(folder)


def test_a_folder_without_a_config_says_what_to_give(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert complaint(folder) == f"{folder} holds no config.json: give the folder of a transformers checkpoint"


def test_a_folder_without_a_tokenizer_says_so(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "holds no tokenizer.json" in complaint(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_a_damaged_text_file_is_one_line_naming_the_folder(name: str, folder: Path) -> None:
    (folder / name).write_text("{", encoding="utf-8")
    line = complaint(folder)
    assert line.startswith("cannot read the ")
    assert str(folder) in line


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an architecture that transformers knows": ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
    "an architecture that nobody knows": ({"model_type": "foo9"}, "model_type 'foo9' is not supported"),
    "an activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
    "a rope type": (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}},
        "rope type 'yarn' is not supported",
    ),
    "a field of the wrong type": ({"num_hidden_layers": "two"}, "num_hidden_layers"),
    "more layers than there are": ({"num_hidden_layers": 3}, "the checkpoint lacks model.layers.2."),
    "fewer layers than there are": ({"num_hidden_layers": 1}, "the checkpoint holds model.layers.1."),
    "another number of kv heads": ({"num_key_value_heads": 9}, "k_proj.weight has shape (24, 72)"),
}


@pytest.mark.parametrize(("fields", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_config_asks_for_and_nobody_can_do_is_refused_by_name(
    fields: dict[str, Any], expected: str, folder: Path
) -> None:
    edit_config(folder, **fields)
    assert expected in complaint(folder)


def test_weights_in_several_files_are_read_by_their_index(folder: Path) -> None:
    whole, _ = load(folder, "cpu", "float32")
    (folder / "model.safetensors").unlink()
    hf_model("llama", vocab_size=49_152).save_pretrained(folder, max_shard_size="5MB")
    assert len(weight_files(folder)) > 1
    sharded, _ = load(folder, "cpu", "float32")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), sharded.parameters(), strict=True))


def test_a_missing_part_of_the_weights_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    hf_model("llama", vocab_size=49_152).save_pretrained(folder, max_shard_size="5MB")
    lost = weight_files(folder)[-1]
    lost.unlink()
    assert complaint(folder).startswith(f"{lost} is missing")


def test_a_second_copy_of_the_weights_under_another_name_is_not_read(folder: Path) -> None:
    """Mistral's folders hold one, with other tensor names."""
    from safetensors.torch import save_file

    save_file({"layers.0.attention.wq.weight": torch.zeros(1)}, folder / "consolidated.safetensors")
    load(folder, "cpu", "float32")


# ---- names


def test_without_the_default_model_the_line_says_where_it_should_be_and_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINICB_CACHE", str(tmp_path / "empty"))
    line = complaint(None)
    assert str(packaged_model_folder()) in line
    assert "run `minicb download` once (93 MB)" in line


@pytest.mark.parametrize("name", ["no-such-folder", "./no/such", "/no/such/folder", "~/no such folder", "a/b/c"])
def test_an_unknown_path_is_refused_without_asking_the_network(name: str, no_network: list[str]) -> None:
    line = complaint(name)
    assert name in line
    assert "give an existing folder or a hub name such as org/model" in line
    assert no_network == []


def test_a_hub_that_cannot_be_reached_is_one_line_naming_the_model(no_network: list[str]) -> None:
    assert complaint("nobody/nothing-of-the-kind").startswith("cannot fetch nobody/nothing-of-the-kind from the hub: ")
    assert no_network


def hub(monkeypatch: pytest.MonkeyPatch, local: Path, online: Path) -> list[bool]:
    """A hub that has one folder in its cache and another one online. Returns who was asked: local or not."""
    asked: list[bool] = []

    def snapshot_download(_name: str, *, local_files_only: bool = False, **_options: Any) -> str:
        asked.append(local_files_only)
        return str(local if local_files_only else online)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return asked


def test_a_cached_hub_model_is_found_without_going_online(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, folder, Path("nowhere"))
    assert find_checkpoint("org/model") == folder
    assert asked == [True]


def test_a_hub_download_that_stopped_half_way_is_completed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = shutil.copytree(folder, tmp_path / "half")
    (half / "model.safetensors").unlink()
    asked = hub(monkeypatch, half, folder)
    assert find_checkpoint("org/model") == folder
    assert asked == [True, False]


# ---- the tokenizer: plain lists of ids, one BOS, text that comes back


RETURNED: dict[str, Callable[[], Any]] = {
    "a list": lambda: [1, 2, 3],
    "a list in a list": lambda: [[1, 2, 3]],
    "a mapping": lambda: {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]},
    "a mapping of a batch": lambda: {"input_ids": [[1, 2, 3]]},
    "a tensor": lambda: torch.tensor([1, 2, 3]),
    "a tensor of a batch": lambda: torch.tensor([[1, 2, 3]]),
    "a mapping of a tensor": lambda: {"input_ids": torch.tensor([[1, 2, 3]])},
    "a numpy array": lambda: np.array([1, 2, 3]),
    "numpy numbers": lambda: list(np.array([1, 2, 3])),
}


@pytest.mark.parametrize("make", RETURNED.values(), ids=RETURNED.keys())
def test_ids_are_a_plain_list_whatever_the_library_returns(make: Callable[[], Any]) -> None:
    inner = SimpleNamespace(chat_template="x", eos_token_id=0, apply_chat_template=lambda *_, **__: make())
    ids = Tokenizer(inner).chat([{"role": "user", "content": "hello"}])
    assert ids == flat_ids(make()) == [1, 2, 3]
    assert all(type(i) is int for i in ids)


def test_no_ids_are_an_empty_list() -> None:
    assert flat_ids([]) == flat_ids({"input_ids": []}) == flat_ids(torch.tensor([], dtype=torch.int64)) == []


@pytest.fixture
def eager_bos() -> Tokenizer:
    """A tokenizer that adds a BOS to every text, and whose chat template prints one too."""
    from tokenizers import Tokenizer as Inner
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    inner = Inner(WordLevel({"<s>": 0, "</s>": 1, "hello": 2, "user": 3, "assistant": 4}, unk_token="</s>"))
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    template = "{{ bos_token }}{% for m in messages %} {{ m.role }} {{ m.content }}{% endfor %} assistant"
    return Tokenizer(
        PreTrainedTokenizerFast(
            tokenizer_object=inner, bos_token="<s>", eos_token="</s>", chat_template=template
        )
    )  # fmt: skip


def test_a_chat_begins_with_exactly_one_bos(eager_bos: Tokenizer) -> None:
    assert eager_bos.chat([{"role": "user", "content": "hello"}]) == [0, 3, 2, 4]


def test_plain_text_keeps_the_one_bos_that_its_tokenizer_adds(eager_bos: Tokenizer) -> None:
    assert eager_bos.encode("hello") == [0, 2]


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ({"content": "hello"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": 3, "content": "hello"}, "role"),
        ({"role": "user", "content": ["hello"]}, "content"),
        ("hello", "role"),
    ],
)
def test_a_chat_message_without_role_or_content_is_refused_by_its_number(
    message: Any, missing: str, eager_bos: Tokenizer
) -> None:
    good = {"role": "user", "content": "hello"}
    with pytest.raises(ValueError, match=f"chat message 1 has no {missing}"):
        eager_bos.chat([good, message])


def test_a_model_without_a_chat_template_says_what_to_give_instead() -> None:
    with pytest.raises(ValueError, match="no chat template: give plain text or token ids"):
        Tokenizer(SimpleNamespace(chat_template=None)).chat([{"role": "user", "content": "hello"}])


ALPHABETS = (
    "abc XYZ ,.;!?",
    "0123456789 .,-+",
    "  \n\t ab",
    "äöüßéñçø Ωжд",
    "你好世界日本語한국어",
    "😀🌊⚓️👩‍👩‍👧‍👦🇫🇷é",
    "{}[]()<>=/\\\"'`#$%&*_|~^@",
    "العربية עברית हिन्दी ไทย",
)


def strings() -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 40))) for _ in range(200)]


def test_200_strings_of_every_kind_come_back_as_they_went_in() -> None:
    tokenizer = Tokenizer.load(real_checkpoint())
    assert [text for text in strings() if tokenizer.decode(tokenizer.encode(text)) != text] == []


def test_the_real_models_chat_template_opens_the_answer() -> None:
    tokenizer = Tokenizer.load(real_checkpoint())
    text = tokenizer.inner.decode(tokenizer.chat([{"role": "user", "content": "Hi"}]))
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


# ---- what drifts between versions of transformers is touched in one place


def test_only_the_adapter_touches_transformers_in_the_core() -> None:
    core = sorted((Path(__file__).parents[1] / "minicb").glob("*.py"))
    drifting = re.compile(r"(from|import) transformers|rope_theta|torch_dtype|(key|value)_cache\b|_legacy_cache")
    touching = {path.name for path in core if drifting.search(path.read_text(encoding="utf-8"))}
    assert touching == {"checkpoint.py"}


# ---- the real model, offline


@pytest.fixture(scope="module")
def real() -> tuple[Model, Tokenizer]:
    real_checkpoint()
    return load(None, "cpu", "float32")


def test_the_real_model_is_what_its_name_says(real: tuple[Model, Tokenizer]) -> None:
    model, tokenizer = real
    config = model.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert (config.vocab_size, config.tied_head, config.rope.theta) == (49_152, True, 100_000.0)
    assert tokenizer.end_ids <= config.end_ids


def test_the_real_model_knows_a_capital_and_ends_its_answer(real: tuple[Model, Tokenizer]) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    (output,) = LLM(*real, max_model_len=128).generate(messages, SamplingParams(max_tokens=32))
    assert "Paris" in output.text
    assert output.finish_reason == "stop"


def test_loading_and_answering_try_no_connection(no_network: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # only now, long after the libraries were imported
    llm = LLM(device="cpu", dtype="float32", max_model_len=64)
    assert llm.generate("Once upon a time", SamplingParams(max_tokens=2))[0].token_ids
    assert no_network == []


OFFLINE = """
import socket
attempts = []
def refuse(*where):
    attempts.append(where)
    raise OSError("denied")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from minicb import LLM, SamplingParams
answer = LLM(device="cpu", max_model_len=64).generate("Once upon a time", SamplingParams(max_tokens=2))[0]
print(len(answer.token_ids), attempts)
"""


def test_a_fresh_process_with_an_empty_home_needs_no_network_and_no_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINICB_CACHE", str(real_checkpoint().parent))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, encoding="utf-8", check=False, timeout=120
    )  # fmt: skip
    assert run.stdout.strip() == "2 []", run.stderr
