"""Fast paths, each tested against the reference over random ragged shapes. Two questions are asked of this room:
how to make a model fast, and which attention suits it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minicb.model import Model
    from minicb.reference import Attention


def faster(model: Model, *, native: bool = False) -> Model:
    """The model with what makes it faster on its device; use what is returned, as the given one may be changed.

    native: compile the extra for CPUs. Raises ValueError if that is asked for and cannot be done.
    """
    if native:
        from minicb.kernels.native import speed_up_natively

        return speed_up_natively(model)
    if model.device.type == "cuda":
        return faster_on_cuda(model)
    from minicb.kernels.fused import speed_up

    return speed_up(model)


def faster_on_cuda(model: Model) -> Model:
    """Fused layers where there is Triton, and decode steps that are replayed."""
    from minicb.kernels.graphs import GraphedModel

    if find_spec("triton") is not None:
        from minicb.kernels import triton_layer

        model = triton_layer.speed_up(model)
    return model if isinstance(model, GraphedModel) else GraphedModel(model)


def best_attention(model: Model) -> Attention:
    """The fastest attention back end for a model."""
    from minicb.kernels.grouped import GroupedAttention
    from minicb.kernels.native import NativeAttention, NativeLayer

    first = next(iter(getattr(model, "layers", ())), None)  # whoever stands in for a model may have none
    if isinstance(first, NativeLayer):
        return NativeAttention()
    return attention_on_cuda(model) if model.device.type == "cuda" else GroupedAttention()


def attention_on_cuda(model: Model) -> Attention:
    """Triton's kernel, else the library's, else what runs everywhere."""
    from minicb.kernels.grouped import GroupedAttention
    from minicb.kernels.varlen import VarlenAttention, objection

    if find_spec("triton") is not None:
        from minicb.kernels.triton_attention import TritonAttention, fits

        if fits(model):
            return TritonAttention()
    return GroupedAttention() if objection(model.device, model.dtype) else VarlenAttention()
