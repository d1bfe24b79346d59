"""The trophy: one file, made of the learner's functions and the core's own text, that serves a model without minicb."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from learner import forget, hand_in, out, right

import minicb.course as course
from minicb import Engine, SamplingParams, cli, seams
from minicb.checkpoint import find_checkpoint
from minicb.course import work
from minicb.course.answer import packaged_model
from minicb.course.bundle import ORDER, Bundle
from minicb.course.export import compose, own_sources
from minicb.course.pieces import path_of
from minicb.course.spec import exercises
from minicb.weights import load
from tests.oracle import hf_model
from tests.test_structure import ORDER as CORE

PROMPTS = ["a b c", "d e f g h i j k", "l"]
KINDS: dict[str, dict[str, Any]] = {"llama": {}, "qwen2": {}, "qwen3": {"tie_word_embeddings": False}}


def checkpoint(folder: Path, kind: str = "llama", **config: Any) -> Path:
    """A tiny random model that can read letters."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    hf_model(kind, **config).save_pretrained(folder)
    letters = Tokenizer(WordLevel({chr(97 + i % 26) * (1 + i // 26): i for i in range(64)}, unk_token="a"))
    letters.pre_tokenizer = Whitespace()
    letters.save(str(folder / "tokenizer.json"))
    return folder


def ids_of(prompt: str) -> list[int]:
    return [ord(letter) - 97 for letter in prompt.split()]


def engines_answers(model: Any, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    engine = Engine(model, attention="reference", max_model_len=64, kv_cache_memory_bytes=1 << 28)
    names = [engine.add_request(ids, SamplingParams(max_tokens=max_tokens)) for ids in prompts]
    done = {}
    while engine.has_unfinished_requests:
        done.update({event.request_id: list(event.output.token_ids) for event in engine.step() if event.output})
    return [done[name] for name in names]


def run_alone(path: Path, *arguments: str) -> str:
    """Run the file where no import of minicb can succeed."""
    code = f"import runpy, sys; sys.modules['minicb'] = None; sys.argv = {[path.name, *arguments]!r}; "
    code += f"runpy.run_path({str(path)!r}, run_name='__main__')"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def printed_ids(text: str) -> list[list[int]]:
    return [ast.literal_eval(found) for found in re.findall(r"^ +ids (\[.*?\])", text, re.MULTILINE)]


def module_of(text: str) -> Iterator[Any]:
    module = types.ModuleType("exported")
    sys.modules["exported"] = module
    exec(compile(text, "engine.py", "exec"), module.__dict__)
    yield module
    del sys.modules["exported"]


@pytest.fixture
def exported() -> Iterator[Any]:
    """The file as a module, with nothing in it but references."""
    yield from module_of(compose({}))


# ---- it runs alone and gives the same tokens


def test_every_part_of_the_learners_runs_in_a_file_without_minicb(tmp_path: Path) -> None:
    for one in exercises().values():
        seams.install(one.id, one.seam.reference)
        work.keep(one, "import math\nimport torch\n\n" + right(one.id))
    forget()
    work.load()
    path = course.export(tmp_path / "mine")
    folder = checkpoint(tmp_path / "tiny")
    said = run_alone(path, "--model", str(folder), "--max-tokens", "6", "--budget", "5", "--check", *PROMPTS)
    assert said.endswith("the same alone and without a cache: True\n")
    with seams.references_only():
        assert printed_ids(said) == engines_answers(load(folder)[0], [ids_of(p) for p in PROMPTS], 6)
    assert path.read_text(encoding="utf-8").count(", mine\n") == len(exercises())


def test_the_file_serves_the_real_model_as_the_engine_does(tmp_path: Path) -> None:
    hand_in("2.2", right("2.2"))
    path = course.export(tmp_path)
    prompts = ["The capital of France is", "Water boils at", "Once upon a time"]
    said = run_alone(path, "--model", str(find_checkpoint(None)), "--max-tokens", "8", *prompts)
    model, tokenizer = packaged_model()
    with seams.references_only():
        assert printed_ids(said) == engines_answers(model, [tokenizer.encode(prompt) for prompt in prompts], 8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_reads_the_checkpoints_that_it_says_it_reads(kind: str, tmp_path: Path, exported: Any) -> None:
    folder = checkpoint(tmp_path, kind, eos_token_id=7, **KINDS[kind])
    engine = exported.Engine(exported.read_model(folder), max_num_batched_tokens=4, max_num_seqs=2, max_model_len=32)
    requests = engine.generate([ids_of(prompt) for prompt in PROMPTS], 12)
    assert [request.answer for request in requests] == engines_answers(
        load(folder, "cpu")[0], [ids_of(prompt) for prompt in PROMPTS], 12
    )
    assert engine.steps > 12, "with two seats and three prompts one had to wait"


def test_a_checkpoint_that_it_does_not_compute_is_refused(tmp_path: Path, exported: Any) -> None:
    with pytest.raises(SystemExit, match="model_type mistral"):
        exported.read_model(checkpoint(tmp_path, "mistral"))


# ---- what the file is made of


def test_the_text_is_the_cores_own() -> None:
    chosen = Bundle({})
    for (module, _), piece in chosen.taken.items():
        assert piece.text.split("\n", 1)[-1] in path_of(module).read_text(encoding="utf-8")


def test_all_names_are_there_and_none_of_minicb_is() -> None:
    text = compose({})
    tree = ast.parse(text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "minicb" in str(node.module)]
    assert "@seam" not in text
    run = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "-"],
        input=text, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout


def test_nothing_comes_along_that_nobody_names() -> None:
    text = compose({})
    for left_out in ("StopChecker", "SamplingParams", "class Policy", "within_window", "def owners", "RefusedError"):
        assert left_out not in text
    tree = ast.parse(text)
    docs = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = [n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")]
    assert len(set(code) - docs) < 600


def test_the_modules_come_in_the_order_of_the_course() -> None:
    core = [name for name in ORDER if name in CORE]
    assert core == [name for name in CORE if name in ORDER]
    assert set(ORDER) - set(core) == {"course.minimal"}


# ---- the learner's functions, however they are written


HAND_MADE = {
    "an earlier exercise under another name": """
from minicb.masks import causal_mask as tri

def block_mask(lengths):
    '''Triangles.'''
    return torch.block_diag(*[tri(n) for n in lengths]).bool()
""",
    "the module": """
from minicb import masks

def block_mask(lengths):
    return torch.block_diag(*[masks.causal_mask(n) for n in lengths]).bool()
""",
    "the module under another name": """
import minicb.masks as m

def block_mask(lengths):
    return torch.block_diag(*[m.causal_mask(n) for n in lengths]).bool()
""",
    "an import inside, by way of a third module": """
def block_mask(lengths):
    from minicb.reference import causal_mask as tri
    from minicb import masks
    import math
    return torch.block_diag(*[tri(n) if n else masks.causal_mask(math.floor(n)) for n in lengths]).bool()
""",
    "names that the core uses for something else": """
import math as sample
from torch import block_diag as F
from minicb.masks import causal_mask

def block_mask(lengths):
    return F(*[causal_mask(int(sample.floor(n))) for n in lengths]).bool()
""",
}


@pytest.mark.parametrize("own", HAND_MADE.values(), ids=HAND_MADE)
def test_a_learners_imports_are_settled(own: str) -> None:
    for module in module_of(compose({"2.3": "import torch\n" + own})):
        assert module.block_mask([1, 2]).tolist() == [[True, False, False], [False, True, False], [False, True, True]]
        assert module.sample.__module__ == "exported"
        assert module.F.__name__ == "torch.nn.functional"


def test_what_cannot_stand_alone_is_named() -> None:
    own = "from minicb.course.tiny import run\n\n\ndef next_chunk(num_tokens, num_computed, budget):\n    return run\n"
    with pytest.raises(ValueError, match=r"4\.1 next_chunk uses run of minicb\.course\.tiny"):
        compose({"4.1": own})


def test_a_part_that_is_off_the_path_is_in_the_file_as_well() -> None:
    own = "def wasted_fraction(useful, total):\n    return (total - useful) / total if total else 0.0\n"
    assert "# 5.3, mine\n" + own in compose({"5.3": own})
    assert "wasted_fraction" not in compose({})


def test_whose_a_part_is_stands_above_it() -> None:
    hand_in("1.1", right("1.1"))
    course.catch_up(2)
    text = compose(own_sources())
    assert text.startswith('"""My engine: 1 of its 27 parts are mine\n')
    assert "Mine: 1.1 scores.\n" in text
    assert "# 1.1, mine\ndef scores(q, k):" in text
    assert "# 1.2, from minicb\ndef weights(scores: Tensor" in text


# ---- the file system


def test_export_overwrites_only_its_own_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to export yet"):
        course.export(tmp_path)
    hand_in("2.1", right("2.1"))
    path = course.export(tmp_path)
    assert course.export(tmp_path) == path
    path.write_text("my own", encoding="utf-8")
    with pytest.raises(ValueError, match="was not written by export"):
        course.export(tmp_path)
    assert path.read_text(encoding="utf-8") == "my own"


def test_export_says_where_to_and_how_to_run_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hand_in("2.1", right("2.1"))
    out(capsys)
    assert course.export() == home / "my_engine" / "engine.py"
    said = out(capsys).splitlines()
    assert said[0] == "my_engine/engine.py: 1 of its 27 parts are mine"
    assert said[1].endswith(' python my_engine/engine.py "The capital of France is" "Water boils at" --check')


def test_the_export_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "minicb: nothing to export yet: no exercise has passed its check\n"
    hand_in("2.2", right("2.2"))
    assert cli.main(["export", str(tmp_path)]) == 0
