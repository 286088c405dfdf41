"""Imported benchmark runs as text. Takes the normal form as plain dicts (`BenchRun.to_dict`)."""

import os
from collections.abc import Sequence
from typing import Any

from specsim.report.tables import seconds, table

WHOLE = 4  # more runs than this are shown as one table only
LONGEST = 60  # characters of a run's name in that table
_TIMES = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL (per chunk)"),
    ("itl_per_token_s", "ITL per token"),
    ("e2el_s", "E2EL"),
)
_COLUMNS = ("p50", "p90", "p95", "p99")


def imported_text(runs: Sequence[dict[str, Any]], skipped: Sequence[dict[str, str]] = ()) -> str:
    """Every run in full when they are few, one table when they are many; then what was left out."""
    parts = []
    if len(runs) <= WHOLE:
        parts += [run_text(run) for run in runs]
    if len(runs) > 1:
        parts.append(runs_table(runs))
    if len(runs) > WHOLE:
        parts.append(_notes(runs))
    if skipped:
        parts.append("\n".join(f"skipped {item['file']}: {item['reason']}" for item in skipped))
    return "\n\n".join(part for part in parts if part)


def _names(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The runs' files without the folders that all of them share."""
    sources = [run["source"] for run in runs]
    folders = {os.path.dirname(source) for source in sources}
    try:
        common = os.path.commonpath(folders)
    except ValueError:  # relative and absolute paths mixed
        return sources
    return [os.path.relpath(source, common) if common else source for source in sources]


def _notes(runs: Sequence[dict[str, Any]]) -> str:
    """Every note once, with the run it is about or the number of runs."""
    about: dict[str, list[str]] = {}
    for run, name in zip(runs, _names(runs), strict=True):
        for text in run["warnings"]:
            about.setdefault(text, []).append(name)
    return "\n".join(
        f"note ({names[0] if len(names) == 1 else f'{len(names)} runs'}): {text}"
        for text, names in about.items()
    )


def load_text(load: dict[str, Any]) -> str:
    """The load in words."""
    rate, clients = load["request_rate"], load["max_concurrency"]
    words = {
        "open": f"open loop, {_number(rate)} requests/s",
        "closed": f"closed loop, {clients} client{'s' if clients != 1 else ''}",
        "burst": "all requests at once",
        "unknown": "load not stated",
    }[load["kind"]]
    if load["kind"] == "open" and clients is not None:
        words += f", at most {clients} at a time"
    if load["kind"] == "open" and load["burstiness"] is not None:
        shape = load["burstiness"]
        words += {1.0: ", Poisson", "inf": ", evenly spaced"}.get(shape, f", burstiness {shape}")
    return words


def run_text(run: dict[str, Any]) -> str:
    """One run: what was recognised, load, counts, times, speculation, server, notes."""
    version = f" {run['format_version']}" if run["format_version"] else ""
    engine = " ".join(x for x in (run["engine"], run["engine_version"]) if x)
    facts = [
        ("model", run["model"]),
        ("engine", engine),
        ("label", run["label"]),
        ("load", load_text(run["load"])),
        ("requests", _requests(run)),
        ("tokens", _tokens(run)),
        ("speculation", _speculation(run)),
        ("step", _step(run)),
        ("server", _server(run)),
        ("configured", _configured(run["server_args"])),
    ]
    lines = [f"{run['source']}: {run['format']}{version}"]
    lines += [f"  {name:<12}{value}" for name, value in facts if value]
    rows = [_time_row(title, run[name]) for name, title in _TIMES if run[name]]
    if rows:
        headers = ["time", "mean", *_COLUMNS, "std", "from"]
        lines += [f"  {line}" for line in table(headers, rows).splitlines()]
    lines += [f"  note: {text}" for text in run["warnings"]]
    return "\n".join(lines)


def runs_table(runs: Sequence[dict[str, Any]]) -> str:
    """One line per run, to compare load points."""
    headers = ["run", "load", "out tok/s", "TTFT", "TPOT", "ITL", "AL", "tokens/step"]
    rows = []
    for run, name in zip(runs, _names(runs), strict=True):
        acceptance = run["acceptance"] or {}
        rows.append(
            [
                name if len(name) <= LONGEST else "..." + name[3 - LONGEST :],
                load_text(run["load"]),
                _number(run["output_tok_s"]),
                *(seconds((run[t] or {}).get("mean")) for t in ("ttft_s", "tpot_s", "itl_s")),
                _number(acceptance.get("acceptance_length")),
                _number(run["tokens_per_step"]),
            ]
        )
    return table(headers, rows, left=2)


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"


def _time_row(title: str, stat: dict[str, Any]) -> list[str]:
    spread = stat["percentiles"]
    median = stat["median"] if stat["median"] is not None else spread.get("p50")
    cells = [median, *(spread.get(name) for name in _COLUMNS[1:])]
    return [
        title,
        seconds(stat["mean"]),
        *(seconds(value) for value in cells),
        seconds(stat["std"]),
        stat["basis"],
    ]


def _requests(run: dict[str, Any]) -> str:
    if run["completed"] is None:
        return ""
    first = f"{run['completed']} completed"
    if run["failed"]:
        first += f" and {run['failed']} failed"
    if run["duration_s"]:
        first += f" in {seconds(run['duration_s'])}"
    parts = [first]
    if run["request_rate_achieved"]:
        parts.append(f"{run['request_rate_achieved']:.3g}/s")
    if run["concurrency_mean"]:
        parts.append(f"{run['concurrency_mean']:.3g} in flight on average")
    return ", ".join(parts)


def _tokens(run: dict[str, Any]) -> str:
    parts = []
    for name, word in (("input_tokens_mean", "in"), ("output_tokens_mean", "out")):
        if run[name] is not None:
            parts.append(f"{run[name]:.4g} {word}")
    text = " + ".join(parts) + " per request" if parts else ""
    if run["output_tok_s"]:
        text += f"{', ' if text else ''}{run['output_tok_s']:.4g} output tokens/s"
    return text


def _speculation(run: dict[str, Any]) -> str:
    found = run["acceptance"]
    if not found:
        return ""
    parts = []
    if found["acceptance_length"] is not None:
        parts.append(f"acceptance length {found['acceptance_length']:.3f}")
    if found["acceptance_rate"] is not None:
        parts.append(f"rate {found['acceptance_rate']:.1%}")
    if found["per_position"]:
        parts.append("per position " + ", ".join(f"{rate:.3f}" for rate in found["per_position"]))
    if found["num_drafts"]:
        parts.append(f"{found['num_drafts']} drafts")
    return ", ".join(parts) + ("" if found["scope"] == "run" else f" ({found['scope']})")


def _step(run: dict[str, Any]) -> str:
    if run["tokens_per_step"] is None:
        return ""
    text = f"{run['tokens_per_step']:.3f} tokens per step (from {run['tokens_per_step_basis']})"
    if run["draft_share"] is not None:
        text += f", {run['draft_share']:.0%} of the steps with a draft"
    return text


def _server(run: dict[str, Any]) -> str:
    side = run["server"]
    if not side:
        return ""
    word = "on average" if side["gauges"] == "mean" else "at the scrape"
    parts = []
    if side["running"] is not None:
        parts.append(f"running {side['running']:.3g} {word}")
    if side["waiting"] is not None:
        parts.append(f"waiting {side['waiting']:.3g}")
    if side["kv_cache_usage"] is not None:
        parts.append(f"KV cache {side['kv_cache_usage']:.1%}")
    if side["prefix_cache_hit_rate"] is not None:
        parts.append(f"prefix hits {side['prefix_cache_hit_rate']:.1%}")
    if side["preemptions"]:
        parts.append(f"{side['preemptions']} preemptions")
    if side["queue_s"]:
        parts.append(f"queue {seconds(side['queue_s']['mean'])}")
    if side["prefill_s"]:
        parts.append(f"prefill {seconds(side['prefill_s']['mean'])}")
    return ", ".join(parts)


def _configured(args: dict[str, Any]) -> str:
    names = (
        ("method", "method"),
        ("num_speculative_tokens", "k"),
        ("draft_model", "drafter"),
        ("tp", "tp"),
        ("dp", "dp"),
        ("max_num_seqs", "max_num_seqs"),
    )
    return ", ".join(f"{word} {args[name]}" for name, word in names if args[name] is not None)


def found_text(item: dict[str, Any]) -> str:
    """A trace, model or drafter (`formats.recognise`) in a few lines."""
    if "requests" in item:
        facts = [
            ("requests", f"{item['requests']}"
             + (f" in {seconds(item['span_s'])}" if item["span_s"] else ", without times")),
            ("rate", None if item["request_rate"] is None else f"{item['request_rate']:.4g}/s"
             + (f", burstiness {item['burstiness']:.3g}" if item["burstiness"] else "")),
            ("prompt", _lengths(item, "prompt")),
            ("output", _lengths(item, "output")),
            ("sessions", item["sessions"]),
            ("prefixes", "shared prefixes are named (hash ids)" if item["with_prefix_ids"]
             else None),
        ]
        title = f"{item['file']}: {item['format']} trace"
    else:
        facts = [
            (item["kind"], item["name"]),
            ("method" if item["kind"] == "drafter" else "family",
             item.get("method") or item.get("family")),
            ("weights", item.get("weights")),
            ("layers", f"{item['layers']} of width {item['hidden']}"),
            ("vocabulary", f"{item['vocab']}" + (
                f", drafts from {item['draft_vocab']}"
                if item.get("draft_vocab") not in (None, item["vocab"]) else "")),
            ("parameters", f"{item['parameters'] / 1e9:.3g} G"),
            ("verifier", item.get("verifier")),
            ("k", item.get("num_speculative_tokens")),
            ("MTP head", item.get("mtp")),
        ]
        title = f"{item['file']}: {item['format']}"
    lines = [title, *(f"  {name:<12}{value}" for name, value in facts if value)]
    lines += [f"  note: {text}" for text in item.get("notes", ())]
    return "\n".join(lines)


def _lengths(item: dict[str, Any], name: str) -> str:
    key = f"{name}_tokens"
    return (f"{item[f'{key}_mean']:.4g} tokens on average, median {item[f'{key}_p50']:g}, "
            f"longest {item[f'{key}_max']}")
