"""transformers as the peer: the same token ids, left-padded static batches, and each prompt alone.

Besides `minicb/checkpoint.py` this is the one file that touches transformers: to be measured against, and to say
what the right answer is. Its `generate` is used as its users use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class PeerRun:
    """What a static run did. Times in seconds since its start."""

    seconds: float = 0.0
    answers: list[list[int]] = field(default_factory=list)
    ttft_s: list[float] = field(default_factory=list)
    token_slots: int = 0
    useful_slots: int = 0


class Transformers:
    """A transformers model on the same device and in the same type as ours."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, end_ids: frozenset[int]) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.model: Any = AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype, local_files_only=True)
        self.model.to(device).eval()
        self.device, self.end_ids = device, sorted(end_ids)

    def static(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: Sequence[int],
        batch_size: int,
        on_step: Callable[[list[int], int], None] | None = None,
    ) -> PeerRun:
        """`generate` in left-padded batches, in order. A batch ends with its longest answer, the others wait.

        on_step: called after each step with the batch's indices and the number of tokens it has written
        """
        run, began = PeerRun(), time.perf_counter()
        for first in range(0, len(prompts), batch_size):
            members = list(range(first, min(first + batch_size, len(prompts))))
            self.static_batch(run, began, members, prompts, max_tokens, on_step)
        run.seconds = time.perf_counter() - began
        return run

    def static_batch(
        self,
        run: PeerRun,
        began: float,
        members: list[int],
        prompts: Sequence[Sequence[int]],
        max_tokens: Sequence[int],
        on_step: Callable[[list[int], int], None] | None,
    ) -> None:
        rows = [list(prompts[i]) for i in members]
        width, longest = max(map(len, rows)), max(max_tokens[i] for i in members)
        pad = self.end_ids[0] if self.end_ids else 0
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=self.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self.device)
        marks: list[float] = []

        def watch(sequences: Tensor, scores: Any, **_: Any) -> Tensor:  # noqa: ARG001 - the signature is the library's
            marks.append(time.perf_counter() - began)
            if on_step is not None:
                on_step(members, len(marks))
            return torch.zeros(sequences.shape[0], dtype=torch.bool, device=sequences.device)

        out = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=longest,
            do_sample=False,
            eos_token_id=self.end_ids or None,
            pad_token_id=pad,
            stopping_criteria=[watch],
        )
        for i, row in zip(members, out[:, width:].tolist(), strict=True):
            answer = cut_answer(row, self.end_ids, max_tokens[i])
            run.answers.append(answer)
            run.useful_slots += len(prompts[i]) + len(answer) - 1
        run.ttft_s += [marks[0]] * len(members)
        run.token_slots += len(rows) * (width + len(marks) - 1)  # the last token of a step is never fed

    def continuous(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """`generate_batch`, its own continuous batching: the greedy answers, in the order of the prompts.

        The cache is made as large as the prompts need; left to itself it takes most of the memory.
        """
        from transformers import ContinuousBatchingConfig, GenerationConfig

        page_size, longest = 32, max(map(len, prompts)) + max_tokens
        settings = ContinuousBatchingConfig(
            page_size=page_size, num_blocks=(longest // page_size + 1) * len(prompts) + 1, max_batch_tokens=64
        )
        ends = self.end_ids or None
        greedy = GenerationConfig(do_sample=False, max_new_tokens=max_tokens, eos_token_id=ends, pad_token_id=0)
        rows = [list(prompt) for prompt in prompts]
        done = self.model.generate_batch(
            rows, generation_config=greedy, continuous_batching_config=settings, warmup=False
        )
        return [list(done[f"req_{i}"].generated_tokens) for i in range(len(rows))]

    def managed(self, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int]) -> list[list[int]]:
        """Its continuous batching with a length for each request, which `generate_batch` has not: by its manager."""
        from transformers import ContinuousBatchingConfig, GenerationConfig

        page_size = 32
        pages = sum((len(p) + n) // page_size + 1 for p, n in zip(prompts, max_tokens, strict=True))
        settings = ContinuousBatchingConfig(page_size=page_size, num_blocks=pages + 1, max_batch_tokens=512)
        ends = self.end_ids or -1
        greedy = GenerationConfig(do_sample=False, max_new_tokens=max(max_tokens), eos_token_id=ends, pad_token_id=0)
        with self.model.continuous_batching_context_manager(
            generation_config=greedy, continuous_batching_config=settings, timeout=5, warmup=False
        ) as manager:
            names = [
                manager.add_request(list(prompt), max_new_tokens=length, eos_token_id=ends)
                for prompt, length in zip(prompts, max_tokens, strict=True)
            ]
            answers: dict[str, list[int]] = {}
            while len(answers) < len(names):
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    answers[result.request_id] = list(result.generated_tokens)
                elif result is None and not manager.is_running():
                    raise RuntimeError("transformers' continuous batching stopped before its last answer")
        return [answers[name] for name in names]

    @torch.inference_mode()
    def agrees(self, prompt: Sequence[int], answer: Sequence[int], max_tokens: int) -> bool:
        """Is this answer what greedy decoding of the prompt alone gives, token for token, and its full length?

        One forward pass over prompt and answer shows it: if each token is the likeliest after those before it, then
        greedy decoding, which starts at the same prompt, can take no other way.
        """
        ids = torch.tensor([[*prompt, *answer]], device=self.device)
        likeliest = self.model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].argmax(dim=-1).tolist()
        whole = len(answer) == max_tokens or (bool(answer) and answer[-1] in self.end_ids)
        return whole and likeliest == list(answer)


def cut_answer(row: Sequence[int], end_ids: Sequence[int], max_tokens: int) -> list[int]:
    """The part of a generated row that its request asked for: up to its first end id, at most max_tokens."""
    answer = list(row[:max_tokens])
    ends = [at for at, token in enumerate(answer) if token in end_ids]
    return answer[: ends[0] + 1] if ends else answer
