"""minicb: continuous batching from first principles; the engine that the course builds.

from minicb import LLM, SamplingParams
print(LLM().generate("The capital of France is", SamplingParams(max_tokens=8))[0].text)
"""

from minicb.engine import Engine, EngineDeadError
from minicb.llm import LLM
from minicb.outputs import Event, RequestOutput
from minicb.request import RefusedError
from minicb.sampling import SamplingParams

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "Engine",
    "EngineDeadError",
    "Event",
    "RefusedError",
    "RequestOutput",
    "SamplingParams",
    "__version__",
]
