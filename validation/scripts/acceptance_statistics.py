"""Statistics of recorded accepted lengths: what the model of acceptance spread is fitted to.

    python validation/scripts/acceptance_statistics.py --traces DIR --smollm2 DIR

reads recorded sequences and writes `validation/data/acceptance_statistics.json`. The traces of
SpecDecode-Bench ("Speculative Decoding: Performance or Illusion?") name no licence, so they stay
outside the repository and only statistics are kept; the SmolLM2 and Qwen2.5-Coder runs are our own.

A case is one drafter on one data set at one k. `statistics` is used on measured and on simulated
sequences alike, so that the bias of finite sequences is the same on both sides.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from common import STATISTICS, read_csv, write_text
from numpy.typing import NDArray

LAGS = (1, 2, 3, 5, 10)

Sequences = list[NDArray[np.int64]]

TRACES = "SpecDecode-Bench traces, Llama-3.1-8B-Instruct, greedy, H100 (statistics only)"
# One more data set of the same source, of which only these figures are at hand. Steps per request
# follow from the sampling part of the spread: within-request variance / steps = sd_sampling^2.
# (InstructCoder is left out: its step-weighted spread, from all minus within autocorrelation, is
# 1.5 times the unweighted one, so its request lengths vary too much to be replaced by one number.)
PUBLISHED_FIGURES: list[dict[str, Any]] = [
    {
        "name": "llama-8b-eagle-cnn_dailymail-k3",
        "dataset": "cnn_dailymail",
        "unconditional": [0.648, 0.412, 0.269],
        "sd_between": 0.217,
        "sd_sampling": 0.107,
        "acf_all": {"1": 0.136},
        "acf_within": {"1": 0.107},
    },
]


def statistics(tokens: Sequences, k: int, drafted: Sequences | None = None) -> dict[str, Any]:
    """Statistics of tokens per step (bonus counted), one array per request.

    `sd_between` is the standard deviation of the request means, `sd_sampling` the part of it that
    the finite number of independent steps would give; autocorrelations are pooled over requests,
    around the grand mean (`acf_all`) and around each request's own mean (`acf_within`).
    """
    every = np.concatenate(tokens)
    grand, variance = every.mean(), every.var()
    centred = [seq - seq.mean() for seq in tokens]
    within_variance = float(np.concatenate(centred).var())
    means = np.array([seq.mean() for seq in tokens])
    long_enough = [seq for seq in tokens if len(seq) > 1]
    share = 1.0 if drafted is None else float(np.concatenate(drafted).mean())
    result: dict[str, Any] = {
        "requests": len(tokens),
        "steps": len(every),
        "tokens_per_step": float(grand),
        "unconditional": [float((every > i).mean() / share) for i in range(1, k + 1)],
        "draft_probability": share,
        "sd_between": float(means.std(ddof=1)),
        "sd_sampling": math.sqrt(np.mean([s.var(ddof=1) / len(s) for s in long_enough])),
        "within_variance": within_variance,
        "acf_all": {},
        "acf_within": {},
        "request_mean_p10_p50_p90": np.quantile(means, [0.1, 0.5, 0.9]).tolist(),
    }
    for lag in LAGS:
        products = [s[:-lag] * s[lag:] for s in (seq - grand for seq in tokens) if len(s) > lag]
        result["acf_all"][str(lag)] = float(np.concatenate(products).mean() / variance)
        products = [s[:-lag] * s[lag:] for s in centred if len(s) > lag]
        result["acf_within"][str(lag)] = float(np.concatenate(products).mean() / within_variance)
    if drafted is not None and share < 1.0:
        flags = [d - d.mean() for d in drafted]
        spread = np.concatenate(flags).var()
        products = [d[:-1] * d[1:] for d in flags if len(d) > 1]
        result["draft_acf_within_1"] = float(np.concatenate(products).mean() / spread)
    return result


def replay(by_position: list[int], k: int) -> NDArray[np.int64]:
    """Tokens of each step of a run with k drafts, from the tokens each position would yield."""
    place, steps = 0, []
    while place < len(by_position):
        steps.append(min(by_position[place], k + 1))
        place += steps[-1]
    return np.array(steps)


def case(
    name: str,
    source: str,
    drafter: str,
    dataset: str,
    k: int,
    tokens: Sequences,
    drafted: Sequences | None = None,
) -> dict[str, Any]:
    """Statistics of one case, with the quantiles of the tokens per request."""
    output = [int(seq.sum()) for seq in tokens]
    middles = (np.arange(100) + 0.5) / 100
    return {
        "name": name,
        "source": source,
        "drafter": drafter,
        "dataset": dataset,
        "k": k,
        "output_tokens_quantiles": [round(float(x)) for x in np.quantile(output, middles)],
        **statistics(tokens, k, drafted),
    }


def derive(traces: Path, smollm2: Path) -> list[dict[str, Any]]:
    """All cases, from the two folders of recorded sequences."""
    cases = []
    for dataset in ("gsm8k", "sharegpt"):
        path = traces / f"llama31-8b_{dataset}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            requests = [json.loads(line) for line in file]
        for drafter, lengths in (("eagle", (3, 5)), ("ngram", (3, 5))):
            for k in lengths:
                tokens = [replay(request[drafter], k) for request in requests]
                cases.append(
                    case(f"llama-8b-{drafter}-{dataset}-k{k}", TRACES, drafter, dataset, k, tokens)
                )
    for figures in PUBLISHED_FIGURES:
        rates = figures["unconditional"]
        length = 1.0 + sum(rates)
        variance = sum((2 * i + 1) * p for i, p in enumerate(rates)) - (length - 1.0) ** 2
        between = figures["sd_between"] ** 2 - figures["sd_sampling"] ** 2
        steps = (variance - between) / figures["sd_sampling"] ** 2
        cases.append(
            {
                "source": TRACES,
                "drafter": "eagle",
                "k": len(rates),
                "requests": 0,
                "tokens_per_step": length,
                "draft_probability": 1.0,
                "output_tokens_quantiles": [round(steps * length)],
                **figures,
            }
        )
    source = "own runs of SmolLM2-135M-Instruct on 122 HumanEval and Spec-Bench requests, greedy"
    groups: dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = defaultdict(list)
    for row in read_csv(smollm2 / "accepted_lengths_per_request.csv"):
        accepted = np.array(row["accepted_lengths"].split(), dtype=np.int64)
        proposed = np.array(row["proposed_lengths"].split(), dtype=np.int64)
        if len(accepted):
            groups[row["method"]].append((accepted, proposed))
    for method, records in sorted(groups.items()):
        drafter, _, length = method.rpartition("_K")
        origin = source
        if method.startswith("qwen"):
            origin = "own runs of Qwen2.5-Coder 1.5B with the 0.5B as draft, 18 requests, greedy"
        tokens = [accepted + 1 for accepted, _ in records]
        drafted = [(proposed > 0).astype(np.int64) for _, proposed in records]
        cases.append(
            case(
                method.replace("_", "-"),
                origin,
                drafter,
                "spec-bench+humaneval",
                int(length),
                tokens,
                drafted,
            )
        )
    return cases


def rounded(value: Any) -> Any:
    """Floats to six significant digits: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--traces", type=Path, required=True, help="llama31-8b_*.jsonl.gz")
    parser.add_argument("--smollm2", type=Path, required=True, help="accepted_lengths_*.csv")
    arguments = parser.parse_args()
    cases = rounded(derive(arguments.traces, arguments.smollm2))
    write_text(STATISTICS, "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
