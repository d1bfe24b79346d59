"""One process an engine: each loads its library alone, so that memory and start-up are its own.

`protocol.py`, `vllm_worker.py` and `llama_worker.py` import nothing of minicb: they run in environments that do not
have it.
"""
