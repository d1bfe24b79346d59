"""The Triton kernels compiled for cards that are not here. Needs Triton and no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stand_ins import environment_without

pytest.importorskip("triton", reason="Triton is not installed: `make kernels` fetches it (Linux)")

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("target", "kind", "shared"), [(90, "bf16", 101_376), (75, "fp16", 65_536)])
def test_every_kernel_can_be_compiled_for_a_card_that_is_not_here(
    target: int, kind: str, shared: int, tmp_path: Path
) -> None:
    """Within the shared memory that a block gets: on 7.5, or on the smallest cards after it, 8.6 and 8.9."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.harness.compile", "--targets", str(target), "--types", kind],
        cwd=ROOT, env={**environment_without("TRITON_INTERPRET"), "TRITON_CACHE_DIR": str(tmp_path)}, check=False,
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    built = [json.loads(line) for line in run.stdout.splitlines()]
    assert {one["kernel"] for one in built} == {
        "attend_kernel", "write_kernel", "turn_kernel", "norm_kernel", "swiglu_kernel"
    }  # fmt: skip
    assert max(one["shared"] for one in built) <= shared
    products = [one["products"] for one in built if one["kernel"] == "attend_kernel"]
    assert all(products) if target >= 80 else not any(products)
