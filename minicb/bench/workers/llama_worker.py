"""llama.cpp as a worker: one continuous batch over sequences, by the low-level calls of llama-cpp-python.

Run by path with the Python of an environment that has it (`minicb bench --llama-python P --llama-model FILE.gguf`).
The weights are the file's (quantised as it says); `dtype` does not apply.
"""

import ctypes

from protocol import Answers, Job, serve


def start(job: Job):
    import llama_cpp
    import numpy as np

    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(job.options["gguf"].encode(), llama_cpp.llama_model_default_params())
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    places, budget = job.options["max_num_seqs"], job.options["max_num_batched_tokens"]
    params = llama_cpp.llama_context_default_params()
    lengths = sorted(len(p) + n for p, n in zip(job.prompts, job.max_tokens, strict=True))
    params.n_ctx = sum(lengths[-places:]) + 64
    params.n_batch = params.n_ubatch = budget
    params.n_seq_max = places
    params.kv_unified = True
    params.n_threads = params.n_threads_batch = job.options["threads"]
    context = llama_cpp.llama_init_from_model(model, params)
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(budget, 0, 1)

    def put(token: int, position: int, sequence: int, wanted: bool) -> None:
        at = batch.n_tokens
        batch.token[at], batch.pos[at], batch.logits[at] = token, position, wanted
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
        batch.n_tokens = at + 1

    def run() -> Answers:
        llama_cpp.llama_memory_clear(memory, True)
        texts = [list(prompt) for prompt in job.prompts]
        waiting, free, running = list(range(len(texts))), list(range(places))[::-1], {}
        done = [0] * len(texts)
        while waiting or running:
            while waiting and free:
                running[waiting.pop(0)] = free.pop()
            batch.n_tokens, rows = 0, []
            for name, sequence in running.items():
                room = budget - batch.n_tokens - (len(running) - len(rows) - 1)
                chunk = texts[name][done[name] : done[name] + max(room, 0)]
                for i, token in enumerate(chunk):
                    last = done[name] + i + 1 == len(texts[name])
                    put(token, done[name] + i, sequence, last)
                rows.append((name, sequence, batch.n_tokens - 1))
                done[name] += len(chunk)
            if llama_cpp.llama_decode(context, batch):
                raise RuntimeError("llama_decode failed: no room in its cache")
            for name, sequence, row in rows:
                if done[name] < len(texts[name]):
                    continue
                logits = llama_cpp.llama_get_logits_ith(context, row)
                view = np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (vocabulary,))
                texts[name].append(int(view.argmax()))
                if len(texts[name]) == len(job.prompts[name]) + job.max_tokens[name]:
                    llama_cpp.llama_memory_seq_rm(memory, sequence, -1, -1)
                    free.append(running.pop(name))
        return [text[len(prompt) :] for text, prompt in zip(texts, job.prompts, strict=True)]

    return llama_cpp.__version__, run


if __name__ == "__main__":
    serve(start)
