"""Looking inside: the tensors of a part, while it goes on running and being counted."""

from __future__ import annotations

import torch

from minicb import attention, seams
from minicb.course.inside import watch


def test_what_goes_in_and_what_comes_out() -> None:
    scores, mask = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[True, False]])
    with watch("1.2") as calls:
        attention.weights(scores, mask=mask)
    scores.zero_()
    assert [arg.tolist() for arg in calls[0].args] == [[[[1.0, 2.0]]], [[True, False]]]
    assert calls[0].result.tolist() == [[[1.0, 0.0]]]
    attention.weights(scores, mask)
    assert len(calls) == 1


def test_whoever_is_watched_is_counted() -> None:
    seams.begin_receipt()
    own = lambda logits: logits.argmax(-1)  # noqa: E731
    seams.install("0.1", own)
    with watch("0.1") as calls:
        from minicb.sampling import greedy_pick

        greedy_pick(torch.tensor([[1.0, 3.0]]))
    assert calls[0].result.tolist() == [1]
    assert [(line.owner, line.calls) for line in seams.receipt()] == [("yours", 1)]
    assert seams.SEAMS["0.1"].active is own
