"""The results page: from the reports of `minicb bench` to the table that stands in the README.

python -m minicb.bench.page        writes the table anew from figures/bench-*.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- bench: made by python -m minicb.bench.page -->\n", "<!-- /bench -->"
NAMES = {
    "minicb": "**minicb**",
    "minicb-native": "**minicb**, with its compiled extra",
    "minicb-reference": "minicb, plain",
    "transformers-static": "transformers `generate`, left-padded",
    "transformers-cb": "transformers continuous batching",
    "vllm": "vLLM, its CPU build",
    "llama.cpp": "llama.cpp, its own file's weights",
    "gemm-floor": "*torch's products alone*",
}


def stored_reports(folder: Path = ROOT / "figures") -> list[dict[str, Any]]:
    """The committed reports, one a type, float32 first."""
    files = sorted(folder.glob("bench-*.json"), reverse=True)
    reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return sorted(reports, key=lambda report: report["dtype"] != "float32")


def page(reports: Sequence[dict[str, Any]]) -> str:
    """A markdown table: a row an engine, its speed in each type with the slowest and the fastest run."""
    work, machine = reports[0]["workload"], reports[0]["machine"]
    rounds = len(reports[0]["engines"][0]["runs_s"])
    read, write = f"{work['prompt_tokens']:,} tokens to read", f"{work['output_tokens']:,} to write"
    place = f"{machine['cores']} cores, {machine['cpu']} ({instructions(machine)})"
    made = f"torch {machine['torch']}, {reports[0]['date']}"
    lines = [
        f"`{work['name']}`: {work['requests']} requests, {read} and {write}, all there at the start, greedy.",
        f"{place}, {made}.",
        f"Written tokens a second: the median of {rounds} runs in turns (slowest-fastest).",
        "",
        "| engine | " + " | ".join(report["dtype"] for report in reports) + " | ready after | peak memory |",
        "|---" * (len(reports) + 3) + "|",
    ]
    by_name = [{one["name"]: one for one in report["engines"]} for report in reports]
    for name in dict.fromkeys(name for engines in by_name for name in engines):
        cells = [speed(engines.get(name), work["output_tokens"]) for engines in by_name]
        some = next(engines[name] for engines in by_name if name in engines)
        version = "" if name.startswith(("minicb", "gemm")) else f" {some['version']}"
        ready, peak = f"{some['ready_s']:.0f} s", f"{some['peak_rss_bytes'] / 1e9:.1f} GB"
        ready, peak = ("", "") if name == "gemm-floor" else (ready, peak)
        lines.append(f"| {NAMES[name]}{version} | " + " | ".join(cells) + f" | {ready} | {peak} |")
    lines += ["", *map(compared, reports), *(alone(report) for report in reports if "growth" in report)]
    return "\n".join(lines) + "\n"


def compared(report: dict[str, Any]) -> str:
    """A sentence: how many times as fast the first engine is as each other one, turn by turn."""
    first = report["engines"][0]["name"]
    short = {name: words.partition(",")[0].strip("*") for name, words in NAMES.items()}
    times = (f"{ratio:.2g} times {short[name.partition('/')[2]]}" for name, ratio in report["ratios"].items())
    return f"In {report['dtype']}, turn by turn, {NAMES[first]}: {', '.join(times)}.  "


def alone(report: dict[str, Any]) -> str:
    times = f"{report['growth']['alone_over_weights']:.2f} times"
    return f"A {report['dtype']} request alone: a token in {times} the time in which memory gives all weights once."


def instructions(machine: dict[str, Any]) -> str:
    return f"{machine['vectors']}, bfloat16 {'in hardware' if machine['multiplies_bfloat16'] else 'emulated'}"


def speed(engine: dict[str, Any] | None, tokens: int) -> str:
    if engine is None:
        return ""
    slowest, fastest = tokens / max(engine["runs_s"]), tokens / min(engine["runs_s"])
    return f"{engine['output_tokens_per_s']:.0f} ({slowest:.0f}-{fastest:.0f})"


def put(text: str, table: str) -> str:
    """The README with this table between its marks."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(put(readme.read_text(encoding="utf-8"), page(stored_reports())), encoding="utf-8")
