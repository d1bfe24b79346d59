"""torch's own ragged attention: what it is called with, that it is tried out before it is relied on, and what follows.

The call itself needs a GPU; on a CPU a stand-in of the same signature computes what its documentation says.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from ragged import attend_both
from torch import Tensor

from minicb.kernels import varlen
from minicb.kernels.varlen import VarlenAttention, objection, probe_error

library: Any = pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no varlen attention")
REAL = inspect.signature(library.varlen_attn)
CPU = torch.device("cpu")


def documented(splits: int | None = 1, shift: int = 0) -> Any:
    """varlen_attn as documented, one query at a time. `splits`: what it insists on; `shift`: a fault to plant."""

    def attend(
        query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int, *,
        return_aux: Any = None, scale: float | None = None, window_size: tuple[int, int] = (-1, -1),
        enable_gqa: bool = False, seqused_k: Tensor | None = None, block_table: Tensor | None = None,
        num_splits: int | None = None,
    ) -> Tensor:  # fmt: skip
        assert (num_splits, enable_gqa, return_aux, scale) == (splits, True, None, None)
        assert seqused_k is not None
        assert block_table is not None
        assert key.shape[1] % 256 == 0
        assert max_q == cu_seq_q.diff().max()
        assert max_k >= seqused_k.max()
        assert torch.equal(cu_seq_k.diff(), seqused_k)
        out, left = torch.empty_like(query), window_size[0]
        assert window_size[1] == 0, "causal"
        for i, total in enumerate(seqused_k.tolist()):
            first, end = cu_seq_q[i : i + 2].tolist()
            pages = block_table[i].long()
            keys, values = (x[pages].flatten(0, 1)[:total].float() for x in (key, value))
            for row in range(first, end):
                last = total - (end - row) + 1 + shift
                begin = 0 if left < 0 else max(0, last - 1 - left)
                group = query.shape[1] // key.shape[2]
                k, v = (x[begin:last].repeat_interleave(group, 1).transpose(0, 1) for x in (keys, values))
                q = query[row].float()[:, None]
                out[row] = torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, 0].to(query.dtype)
        return out

    return attend


def test_the_stand_in_has_the_parameters_of_the_real_one() -> None:
    assert list(inspect.signature(documented()).parameters) == list(REAL.parameters)


@pytest.mark.parametrize("window", [None, 100])
def test_called_as_documented_it_computes_what_the_reference_computes(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "varlen_attn", documented())
    assert probe_error(CPU, torch.float32, window) < 1e-5


def test_the_probe_notices_a_key_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "varlen_attn", documented(shift=-1))
    assert probe_error(CPU, torch.float32, None) > varlen.TOLERANCE


def test_the_probe_decides_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, cuda = objection.__wrapped__, torch.device("cuda")
    assert ask(CPU, torch.bfloat16) == "it runs on CUDA only, not on cpu"
    assert "not in torch.float32" in ask(cuda, torch.float32)
    monkeypatch.setattr(varlen, "probe_error", lambda *_: 0.001)
    assert ask(cuda, torch.bfloat16) == ""
    monkeypatch.setattr(varlen, "probe_error", lambda *_: float("nan") if _[-1] else 0.001)
    assert ask(cuda, torch.bfloat16) == "its result is off by nan"

    def fails(*_: object) -> float:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nand more")

    monkeypatch.setattr(varlen, "probe_error", fails)
    assert ask(cuda, torch.bfloat16) == "it failed: FlashAttention only supports Ampere GPUs or newer."
    monkeypatch.setattr(library, "varlen_attn", lambda query: query)
    assert ask(cuda, torch.bfloat16).endswith("has it without pages")


def test_pages_of_other_sizes_are_computed_another_way() -> None:
    reference, found = attend_both(VarlenAttention(), 0, 3, 64, None)
    torch.testing.assert_close(found, reference, atol=2e-5, rtol=1e-5)
