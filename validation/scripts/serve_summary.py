"""What a run of serve_guidellm.sh shows: the client's figures beside the server's counters.

Usage: serve_summary.py OUT_DIR > summary.json. Keeps of each guidellm report what describes the run
and its totals, and of each pair of /metrics texts what changed between them.
"""

import json
import re
import sys
from pathlib import Path

KEPT = ("requests_per_second", "request_concurrency", "request_latency", "prompt_token_count",
        "output_token_count", "time_to_first_token_ms", "time_per_output_token_ms",
        "inter_token_latency_ms", "output_tokens_per_second", "iter_tokens_per_iteration")
STATISTICS = ("mean", "median", "std_dev", "min", "max", "count")
SAMPLE = re.compile(r"^(vllm:[a-z0-9_]+)\{([^}]*)\} (\S+)$")


def samples(path: Path) -> dict[str, float]:
    """name[,label=value of interest] -> value, of all counters, counts and sums."""
    found = {}
    for line in path.read_text().splitlines():
        match = SAMPLE.match(line)
        if match and match[1].endswith(("_total", "_count", "_sum")):
            labels = dict(part.split("=", 1) for part in match[2].split(","))
            extra = [labels[key].strip('"') for key in ("position", "finished_reason")
                     if key in labels]
            found[",".join([match[1], *extra])] = float(match[3])
    return found


def counters(before: Path, after: Path) -> dict[str, object]:
    old, new = samples(before), samples(after)
    change = {name: value - old[name] for name, value in new.items()}

    def of(name: str) -> float:
        return change[f"vllm:{name}"]

    def mean(name: str) -> float | None:
        count = of(f"{name}_count")
        return of(f"{name}_sum") / count if count else None

    drafts, tokens = of("spec_decode_num_drafts_total"), of("generation_tokens_total")
    accepted = of("spec_decode_num_accepted_tokens_total")
    positions = [value for name, value in sorted(change.items())
                 if name.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total,")]
    # Every output of a request but its first is one verify step of it.
    steps = of("inter_token_latency_seconds_count")
    first = of("time_to_first_token_seconds_count")
    return {
        "change": {name.removeprefix("vllm:"): value for name, value in change.items()
                   if value and not name.endswith("_sum")},
        "acceptance_length": 1 + accepted / drafts if drafts else None,
        "acceptance_rates": [count / drafts for count in positions] if drafts else [],
        "accepted_is_sum_of_positions": accepted == sum(positions),
        "tokens_per_step": (tokens - first) / steps,
        "mean_ttft_s": mean("time_to_first_token_seconds"),
        "mean_time_per_output_token_s": mean("request_time_per_output_token_seconds"),
        "mean_step_s": mean("inter_token_latency_seconds"),
        "mean_queue_s": mean("request_queue_time_seconds"),
        "mean_e2e_s": mean("e2e_request_latency_seconds"),
    }


def client(path: Path) -> dict[str, object]:
    report = json.loads(path.read_text())
    bench = report["benchmarks"][0]
    metrics = bench["metrics"]
    out: dict[str, object] = {
        "guidellm_version": report["metadata"]["guidellm_version"],
        "strategy": bench["config"]["strategy"], "duration_s": bench["duration"],
        "requests": metrics["request_totals"],
    }
    for name in KEPT:
        values = (metrics.get(name) or {}).get("successful")
        if values:
            out[name] = {key: values[key] for key in STATISTICS}
    return out


def main(folder: Path) -> None:
    out: dict[str, object] = {"machine": json.loads((folder / "machine.json").read_text())}
    for name in ("ngram", "plain"):
        out[name] = {
            "client": client(folder / f"{name}.guidellm.json"),
            "server": counters(folder / f"{name}.before.prom", folder / f"{name}.after.prom"),
        }
    json.dump(out, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
