"""vLLM as a worker; run by path with the Python of an environment that has it (`minicb bench --vllm-python`)."""

import os

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # in this process, so that its memory is counted
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

from protocol import Answers, Job, serve


def start(job: Job):
    import vllm

    engine = vllm.LLM(
        model=job.model, dtype=job.dtype, max_num_seqs=job.options["max_num_seqs"], enable_prefix_caching=False,
        max_model_len=job.options["max_model_len"], seed=0,
    )  # fmt: skip
    params = [
        vllm.SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True, detokenize=False) for n in job.max_tokens
    ]

    def run() -> Answers:
        prompts = [{"prompt_token_ids": ids} for ids in job.prompts]
        return [list(out.outputs[0].token_ids) for out in engine.generate(prompts, params, use_tqdm=False)]

    return vllm.__version__, run


if __name__ == "__main__":
    serve(start)
