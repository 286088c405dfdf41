"""How well a draft head is accepted: real greedy decoding of prompts it was not trained on.

    python validation/scripts/head_acceptance.py [--head FILE] [--model smollm2-135m] [--dtype bf16]

Writes the table between the markers of catalog/heads/<model>/README.md when the shipped head is
measured. Prompts: benchmarks/prompts (our own). Tokens per step count the bonus token, over all
decode steps; cond: P(draft i accepted | all before it accepted).
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import torch
from common import ROOT, replace_between, table

from specsim.decoder.drafters.eagle import EagleWeights, shipped_head
from specsim.decoder.engine import Engine
from specsim.decoder.models import load_model
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import RequestResult

PROMPTS = ("chat", "code_edit")
K = 4
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def decode(model: str, dtype: str, head: Path) -> dict[str, list[RequestResult]]:
    """Finished requests by kind of prompt."""
    loaded = load_model(model, dtype=dtype)
    tokenizer = loaded.tokenizer()
    by_kind: dict[str, list[RequestResult]] = defaultdict(list)
    for name in PROMPTS:
        lines = (ROOT / "benchmarks" / "prompts" / f"{name}.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        ids = [tokenizer.encode_chat([{"role": "user", "content": row["prompt"]}]) for row in rows]
        options = DecoderOptions(method="eagle", num_speculative_tokens=K, max_num_seqs=16,
                                 max_model_len=max(map(len, ids)) + 130)
        engine = Engine(loaded.model, options, draft=EagleWeights.load(head))
        params = SamplingParams(max_tokens=rows[0]["output_tokens"])
        for row, result in zip(rows, engine.generate(ids, params), strict=True):
            by_kind[row["kind"]].append(result)
    return by_kind


def acceptance_table(by_kind: dict[str, list[RequestResult]]) -> str:
    """One row per kind and one over all."""
    everything = [r for results in by_kind.values() for r in results]
    rows = []
    for kind, results in [*sorted(by_kind.items()), ("all", everything)]:
        steps = [accepted for r in results for _, accepted in r.steps]
        tokens = sum(len(r.token_ids) - 1 for r in results)
        reached = [sum(a >= i for a in steps) for i in range(K + 1)]
        cond = " ".join(f"{reached[i + 1] / reached[i]:.2f}" if reached[i] else "-"
                        for i in range(K))
        rows.append([kind, str(len(results)), str(tokens), f"{tokens / len(steps):.2f}", cond])
    header = ("kind of prompt", "requests", "tokens", "tokens per step", "cond by position")
    return "\n".join(table(header, rows, left=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--head", type=Path)
    parser.add_argument("--dtype", default="bf16")
    given = parser.parse_args()
    head = given.head or shipped_head(given.model)
    text = acceptance_table(decode(given.model, given.dtype, head))
    sys.stdout.write(f"k = {K}, {given.dtype}, greedy, torch {torch.__version__}\n{text}\n")
    readme = head.parent / "README.md"
    if given.head is None and readme.is_file():
        note = f"k = {K}, {given.dtype}, greedy, torch {torch.__version__}:"
        replace_between(readme, f"{BEGIN}\n", f"{note}\n\n{text}\n", END)


if __name__ == "__main__":
    main()
