"""Several requests at once: what they say on the real model, and how often a model runs for them. (Chapter 6)

    together({"A": "...", "B": "..."})         the real model answers all of them in one engine
    serve(lambda chunks: [[c] for c in chunks])  three requests on a tiny model, each step cut into other passes
    meet([(0, [3, 1, 4]), (2, [1, 5])])          tiny requests that arrive at these steps, by any back end

`answer` runs one request; here the parts that join requests are at work: packing, the row's mask, the rows that
are sampled, the loop over the requests. Both go through the parts that are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minicb import seams
from minicb.batch import Batch, Chunk, Plan
from minicb.cache import KVCache, Pool
from minicb.course.answer import packaged_model, whose
from minicb.course.table import LONGEST, THREE, Tokens, Workload
from minicb.course.tiny import model as tiny_model
from minicb.course.trial import describe, one_thread
from minicb.engine import Engine
from minicb.model import Model
from minicb.reference import Attention
from minicb.sampling import Sampled, SamplingParams

CONTEXT = 128  # tokens of prompt and answer
Cut = Callable[[Sequence[Chunk]], Sequence[Sequence[Chunk]]]


def together(
    prompts: Mapping[str, str],
    *,
    late: Mapping[str, int] | None = None,
    max_tokens: int = 6,
    change: Callable[[Batch], Batch] | None = None,
) -> list[Batch]:
    """Let the real model answer all prompts at once, greedily; print the answers and whose parts ran.

    late: request -> steps that run before it arrives
    change: what to do to each step's batch before the model sees it
    Returns the batches that the model saw, one a step.
    """
    weights, tokenizer = packaged_model()
    engine = Engine(weights, tokenizer.decode, attention="reference", max_num_seqs=len(prompts), max_model_len=CONTEXT)
    arrives = {name: (late or {}).get(name, 0) for name in prompts}
    texts, batches, waiting = dict.fromkeys(prompts, ""), list[Batch](), list(prompts)

    def look(_model: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
        batches.append(change(args[0]) if change else args[0])
        return (batches[-1], *args[1:])

    hook = weights.register_forward_pre_hook(look)
    try:
        while waiting or engine.has_unfinished_requests:
            for name in [name for name in waiting if arrives[name] <= engine.steps]:
                engine.add_request(
                    tokenizer.encode(prompts[name]), SamplingParams(max_tokens=max_tokens), request_id=name
                )
                waiting.remove(name)
            for event in engine.step():
                texts[event.request_id] += event.text
    except Exception as error:  # a broken part is put in on purpose: one line instead of our stack
        print(f"The engine stopped: {describe(error)}")
    finally:
        hook.remove()
    for name, prompt in prompts.items():
        print(f"{name}  {prompt!r} -> {texts[name]!r}")
    print(whose())
    return batches


@dataclass(frozen=True, slots=True)
class Served:
    """What a run came to. passes: runs of the model, each of which reads all of its weights once"""

    answers: Mapping[str, Tokens]
    steps: int
    passes: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.steps:>4} steps {self.passes:>5} runs of the model {self.tokens:>6} tokens computed"


@one_thread()
def serve(cut: Cut, workload: Workload = THREE) -> Served:
    """Serve the requests, all there from the start; whoever ends makes room for the next.

    cut: says which chunks of a step go through the model together; `lambda chunks: [chunks]` is one ragged row
    """
    answers, passes, tokens = dict[str, Tokens](), 0, 0
    point = seams.SEAMS["7.4"]
    run_plan, owner = point.installed or point.reference, point.owner

    def count(_model: object, args: tuple[Any, ...]) -> None:
        nonlocal passes, tokens
        passes, tokens = passes + 1, tokens + len(args[0].tokens)

    def in_passes(
        plan: Plan, pool: Pool, model: Model, cache: KVCache, attention: Attention
    ) -> list[Sampled | Exception]:
        found: dict[str, Sampled | Exception] = {}
        for chunks in cut(tuple(plan)):
            part = Plan(tuple(chunks))
            if part:
                names = [request.request_id for request in part.sampled]
                found.update(zip(names, run_plan(part, pool, model, cache, attention), strict=True))
        return [found[request.request_id] for request in plan.sampled]

    engine = Engine(
        tiny_model(), attention="reference", max_num_seqs=workload.rows, max_model_len=LONGEST,
        kv_cache_memory_bytes=1 << 24,
    )  # fmt: skip
    hook = tiny_model().register_forward_pre_hook(count)
    point.put(in_passes, owner)
    try:
        for name, (ids, length) in workload.requests.items():
            engine.add_request(ids, SamplingParams(max_tokens=length, ignore_eos=True), request_id=name)
        while engine.has_unfinished_requests:
            for event in engine.step():
                if event.output is not None:
                    answers[event.request_id] = event.output.token_ids
    finally:
        hook.remove()
        point.put(None if run_plan is point.reference else run_plan, owner)
    return Served(dict(sorted(answers.items())), engine.steps, passes, tokens)


@one_thread()
def meet(
    arrivals: Sequence[tuple[int, Sequence[int]]], attention: Attention | str = "reference", **limits: Any
) -> list[Tokens]:
    """What each request says, 5 tokens, on the tiny model in an engine with these limits.

    arrivals: for each request the step at which it arrives, and its prompt
    """
    engine = Engine(tiny_model(), attention=attention, max_model_len=32, kv_cache_memory_bytes=1 << 24, **limits)
    answers, waiting = dict[str, Tokens](), dict(enumerate(arrivals))
    while waiting or engine.has_unfinished_requests:
        for place, (moment, prompt) in list(waiting.items()):
            if moment <= engine.steps or not engine.has_unfinished_requests:
                engine.add_request(prompt, SamplingParams(max_tokens=5, ignore_eos=True), request_id=str(place))
                del waiting[place]
        answers.update((event.request_id, event.output.token_ids) for event in engine.step() if event.output)
    return [answers[str(place)] for place in range(len(arrivals))]
