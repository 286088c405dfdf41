"""How fast the bundled decoder is on this CPU, beside transformers in the same run.

    python benchmarks/decoder_speed.py [--rounds 4] [--only SECTION ...] [--out decoder_speed.md]

Sections: plain (batch 1, SmolLM2 in bf16 and fp32), large (a random Llama of 1.2B), split (where a
SmolLM2 step goes), assisted (n-gram and draft-model speculation beside assisted generation), own
(speculative beside our own plain decoding: n-gram on code editing, the trained head on chat).

Same weights, prompts, threads and tokens; greedy; runs interleaved. ms per token is the sum of the
least duration of each decode step over the rounds, per token (see decoder_runs); the mean over the
rounds, disturbances included, stands beside it. The report goes to standard output and to --out.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # as the commands do: spin briefly, then sleep

import torch
from decoder_runs import (
    Best,
    Decode,
    assistant,
    compare,
    ours,
    random_llama,
    same_weights,
    theirs,
    transformers_quietly,
)

from specsim.decoder.config import ModelConfig
from specsim.decoder.drafters.eagle import EagleWeights, shipped_head
from specsim.decoder.models import TORCH_DTYPES, LoadedModel, load_model
from specsim.decoder.tokenizer import Tokenizer
from specsim.measure import kernels
from specsim.measure.environment import device_facts, git_sha, now, software
from specsim.measure.models import find_model
from specsim.measure.preload import StepCase, run_steps
from specsim.measure.session import Session, reader, refill
from specsim.measure.timer import CpuTimer, RepeatLimits

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("plain", "large", "split", "assisted", "own")
NATIVE = {"native": True}

# Llama-3.2-1B's published shape (head tied to the embedding).
LLAMA_1B = ModelConfig(
    family="llama", hidden_size=2048, num_layers=16, num_heads=32, num_kv_heads=8, head_dim=64,
    intermediate_size=8192, vocab_size=128256, rope_theta=5e5, tie_word_embeddings=True,
    max_position=4096,
)


class Report:
    """Lines of the report, shown as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str = "") -> None:
        self.lines.append(line)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def log(self, line: str) -> None:
        """To the screen only."""
        sys.stderr.write(line + "\n")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self()
        self("| " + " | ".join(head) + " |")
        self("|" + "---|" * len(head))
        for row in rows:
            self("| " + " | ".join(map(str, row)) + " |")
        self()


class Bandwidth:
    """Memory read rates, probed again and again: the best seen is the limit."""

    def __init__(self) -> None:
        self._timer = CpuTimer()
        self._buffers: dict[int, torch.Tensor] = {}
        self.seen: dict[int, list[float]] = {}

    def probe(self, size: int) -> float:
        """bytes/s of reading `size` bytes; the best of a few."""
        if size not in self._buffers:
            buffer = torch.empty(size // 4)
            refill(buffer, torch.Generator().manual_seed(0))
            self._buffers[size] = buffer
        call = reader(self._buffers[size])
        timed = self._timer.sweep([("read", call)], RepeatLimits(1, 5, 8, 0.5))["read"]
        rate = size / timed.timing.min_s
        self.seen.setdefault(size, []).append(rate)
        return rate

    def best(self, size: int) -> float:
        return max(self.seen[size])

    def drop(self) -> None:
        self._buffers.clear()


def prompts(name: str, tokenizer: Tokenizer, count: int) -> list[list[int]]:
    path = ROOT / "benchmarks" / "prompts" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    texts = [row["prompt"] for row in rows[:: max(1, len(rows) // count)][:count]]
    return [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in texts]


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def row(name: str, best: Best, against: Best) -> list[object]:
    return [
        name, ms(best.seconds_per_token), ms(best.mean_seconds_per_token),
        f"{best.tokens_per_step:.2f}",
        f"{against.seconds_per_token / best.seconds_per_token:.2f}",
        f"{sum(best.cpu_over_wall) / len(best.cpu_over_wall):.2f}",
    ]


HEAD = ("run", "ms/token", "mean", "tokens/step", "speed against the first", "cpu/wall")


def longest(ids: Sequence[Sequence[int]]) -> int:
    return max(map(len, ids))


def same_text(a: Best, b: Best) -> str:
    """How far two runs give the same tokens: equal prompts of all."""
    return f"{sum(x == y for x, y in zip(a.ids, b.ids, strict=True))} of {len(a.ids)}"


# ---------------------------------------------------------------------- sections


def hf_smollm2(folder: Path, dtype: str) -> Any:
    transformers = transformers_quietly()
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=TORCH_DTYPES[dtype]).eval()


def plain(report: Report, memory: Bandwidth, rounds: int) -> None:
    report("## Plain decoding, batch 1, SmolLM2-135M-Instruct")
    for dtype in ("bf16", "fp32"):
        loaded = load_model(dtype=dtype)
        assert loaded.folder is not None
        ids = prompts("chat", loaded.tokenizer(), 3)
        size = loaded.model.weight_bytes()
        memory.probe(size)
        hf = hf_smollm2(loaded.folder, dtype)
        report.log(f"{dtype}:")
        best = compare({"transformers": theirs(hf, 48),
                        "specsim": ours(loaded.model, 48, longest(ids))}, ids, rounds, report.log)
        memory.probe(size)
        mine = best["specsim"]
        report.table(HEAD, [row(f"{name}, {dtype}", b, best["transformers"])
                            for name, b in best.items()])
        report(f"{dtype}: weights {size / 1e6:.0f} MB, read at {memory.best(size) / 1e9:.1f} GB/s "
               f"(best in this run for as much memory) in {ms(size / memory.best(size))} ms: a "
               f"step takes {mine.step_s * memory.best(size) / size:.2f} times that. Same tokens "
               f"as transformers: {same_text(mine, best['transformers'])} prompts"
               + ("." if dtype == "fp32" else " (bf16 ties fall either way)."))
        memory.drop()


def large(report: Report, memory: Bandwidth, rounds: int) -> None:
    report("## Plain decoding, batch 1, a random Llama of 1.24B parameters, bf16")
    hf = random_llama(LLAMA_1B)
    model = same_weights(hf, LLAMA_1B, torch.bfloat16, max_positions=256, **NATIVE)
    size = model.weight_bytes()
    memory.probe(size)
    ids = [[(17 * i + 5) % 50_000 for i in range(32)]]
    best = compare({"transformers": theirs(hf, 16), "specsim": ours(model, 16, 32)}, ids, rounds,
                   lambda line: (report.log(line), memory.probe(size))[0])
    rate = memory.best(size)
    report.table(HEAD, [row(name, b, best["transformers"]) for name, b in best.items()])
    report(f"Weights {size / 1e9:.2f} GB; as much memory is read at {rate / 1e9:.1f} GB/s (best of "
           f"{len(memory.seen[size])} probes between the rounds) in {ms(size / rate)} ms: a step "
           f"takes **{best['specsim'].step_s * rate / size:.2f} times** the memory-read limit, "
           f"transformers {best['transformers'].step_s * rate / size:.2f} times.")
    memory.drop()


def split(report: Report, memory: Bandwidth, rounds: int) -> None:
    report("## Where a SmolLM2 step goes (bf16, batch 1, 128 tokens of context)")
    shape = find_model("smollm2-135m")
    limits = RepeatLimits(3, 15 * rounds, 15 * rounds, 20.0)
    session = Session(torch.device("cpu"), "bf16", [shape], limits)
    model = session.model(shape.name)
    size, layers = model.weight_bytes(), model.config.num_layers
    rows = []
    with torch.inference_mode():
        memory.probe(size)
        times = run_steps(model, StepCase("none", 0, 1, 128), limits)
        (job,) = kernels.product_jobs(shape, (1,), "bf16")
        found = {r.shape["matrix"]: r.timing for r in job.run(session)}
        memory.probe(size)
        plain_torch = load_model(dtype="bf16", native=False).model
        without = run_steps(plain_torch, StepCase("none", 0, 1, 128), limits)
    read = size / memory.best(size)
    head = found["lm_head"]
    for what, pick in (("least of the run", "min_s"), ("median", "median_s")):
        products = layers * sum(getattr(t, pick) for m, t in found.items() if m != "lm_head")
        wall = getattr(times.wall, pick)
        rest = wall - products - getattr(head, pick)
        rows.append([what, ms(wall), ms(products), ms(getattr(head, pick)), ms(rest),
                     f"{rest / layers * 1e3:.3f}", f"{(wall - read) / layers * 1e3:.3f}",
                     ms(getattr(without.wall, pick))])
    report.table(("", "step, ms", "layer products", "lm_head", "all else", "else per layer, ms",
                  "step - reading, per layer", "step without compiled kernels"), rows)
    report(f"Reading {size / 1e6:.0f} MB of weights at {memory.best(size) / 1e9:.1f} GB/s takes "
           f"{ms(read)} ms. Products are timed in a step's order, one call each; they include "
           "reading the weights.")
    memory.drop()


def assisted(report: Report, memory: Bandwidth, rounds: int) -> None:
    report("## Speculative decoding beside transformers' assisted generation, SmolLM2, batch 1")
    for dtype in ("bf16", "fp32"):
        loaded = load_model(dtype=dtype)
        assert loaded.folder is not None
        hf, helper = hf_smollm2(loaded.folder, dtype), hf_smollm2(loaded.folder, dtype)
        edit = prompts("code_edit", loaded.tokenizer(), 3)
        k = 4
        runs: dict[str, Decode] = {
            "transformers, prompt lookup": theirs(hf, 64, prompt_lookup_num_tokens=k),
            "specsim, n-gram": ours(loaded.model, 64, longest(edit), "ngram", k),
        }
        report.log(f"{dtype}, n-gram:")
        best = compare(runs, edit, rounds, report.log)
        report.table(HEAD, [row(f"{name}, k = {k}, {dtype}", b, best["transformers, prompt lookup"])
                            for name, b in best.items()])
        chat = prompts("chat", loaded.tokenizer(), 2)
        runs = {
            "transformers, assistant": theirs(hf, 32, assistant_model=assistant(helper, k)),
            "specsim, draft model": ours(loaded.model, 32, longest(chat), "draft_model", k,
                                         loaded.model),
        }
        report.log(f"{dtype}, the model drafting for itself:")
        best = compare(runs, chat, rounds, report.log)
        report.table(HEAD, [row(f"{name} = target, k = {k}, {dtype}", b,
                                best["transformers, assistant"]) for name, b in best.items()])
    report("The draft model is the target itself: every draft is accepted (up to bf16 ties), so "
           "the second table compares the machinery, not the drafters. Prompt lookup differs in "
           "what it matches, hence in tokens per step.")


def own(report: Report, memory: Bandwidth, rounds: int) -> None:
    loaded = load_model(dtype="bf16")
    head = EagleWeights.load(shipped_head("smollm2-135m"))
    tokenizer = loaded.tokenizer()
    for title, name, count, tokens, method, ks, draft in (
        ("n-gram on code editing", "code_edit", 4, 96, "ngram", (2, 4, 6, 10, 16, 32), None),
        ("the trained head on chat", "chat", 4, 64, "eagle", (1, 2, 3, 4, 6, 8, 12), head),
    ):
        report(f"## Speculative against our own plain decoding: {title}, bf16, batch 1")
        ids = prompts(name, tokenizer, count)
        make = partial(ours, loaded.model, tokens, longest(ids))
        runs: dict[str, Decode] = {"plain": make()}
        for k in ks:
            runs[f"k = {k}"] = make(method, k, draft)
        report.log(f"{title}:")
        best = compare(runs, ids, rounds, report.log)
        report.table(HEAD, [row(label, b, best["plain"]) for label, b in best.items()])
    loss_region(report, loaded, rounds)


def loss_region(report: Report, loaded: LoadedModel, rounds: int) -> None:
    """Large k at a batch where every verified token costs: steps whose drafts are all refused."""
    report("## What a verified draft costs: step time by batch and k, none accepted")
    limits = RepeatLimits(2, 4 * rounds, 8 * rounds, 2.0)
    rows = []
    for batch in (1, 8, 16):
        line: list[object] = [batch]
        base = 0.0
        for k in (0, 2, 4, 8, 16):
            with torch.inference_mode():
                found = run_steps(loaded.model, StepCase("ngram" if k else "none", k, batch, 128),
                                  limits)
            base = base or found.wall.min_s
            line.append(f"{ms(found.wall.min_s)} ({found.wall.min_s / base:.2f})")
        rows.append(line)
    report.table(("batch", "plain", "k = 2", "k = 4", "k = 8", "k = 16"), rows)
    report("ms per step (and as a multiple of a plain step: tokens per step must exceed it for a "
           "gain). Least of the run, n-gram drafts, so that drafting costs next to nothing.")


def machine(report: Report, threads: int) -> None:
    facts, versions = device_facts(torch.device("cpu")), software()
    transformers = transformers_quietly()
    report("# Speed of the bundled decoder on a CPU")
    report()
    report("Written by `python benchmarks/decoder_speed.py`; its docstring says how it is timed.")
    report()
    report(f"{now()}, {facts['name']}, {facts['cores']} cores, {threads} threads, caches "
           f"{facts.get('caches', {})}, load average at the start {facts.get('load_average')}; "
           f"torch {versions['torch']}, transformers {transformers.__version__}, numba "
           f"{versions.get('numba', 'not installed')}, commit {git_sha()[:12]}.")
    report("cpu/wall is the CPU time this process got per second: with 2 threads, 2 would be a "
           "machine of its own.")
    report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "decoder_speed.md")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    report, memory = Report(), Bandwidth()
    started = time.monotonic()
    machine(report, torch.get_num_threads())
    sections = {"plain": plain, "large": large, "split": split, "assisted": assisted, "own": own}
    for name in SECTIONS:
        if name not in given.only:
            continue
        sections[name](report, memory, given.rounds)
        report()
        given.out.write_text("\n".join(report.lines) + "\n", "utf-8")
    load = os.getloadavg()[0]
    report(f"Took {time.monotonic() - started:.0f} s; load average at the end {load:.2f}.")
    given.out.write_text("\n".join(report.lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
