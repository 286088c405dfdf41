"""Server log lines about speculative decoding, as people paste them.

vLLM, every ten seconds (two lines of one interval):
    Engine 000: Avg prompt throughput: .. tokens/s, Avg generation throughput: .. tokens/s,
        Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 0.0%
    SpecDecoding metrics: Mean acceptance length: 3.19, Accepted throughput: .. tokens/s, Drafted
        throughput: .. tokens/s, Accepted: 573 tokens, Drafted: 786 tokens, Per-position
        acceptance rate: 0.8, 0.7, 0.6, Avg Draft acceptance rate: 72.9%
SGLang, every few decode batches:
    Decode batch, #running-req: 4, .., accept len: 2.41, accept rate: 0.47, ..,
        gen throughput (token/s): 450.1, #queue-req: 0
vLLM up to 0.7 (V0), totals since the server's start, of which the last line tells all:
    Speculative metrics: Draft acceptance rate: 0.70, System efficiency: 0.55, Number of speculative
        tokens: 4, Number of accepted tokens: .., Number of draft tokens: .., Number of emitted
        tokens: ..
Other older versions leave some of the parts out or order them differently; each part is found by
its words. Lengths count the bonus token; per-position rates are unconditional, of the positions
that were drafted. What time the throughputs cover: `bench.log_lines`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from specsim.data import data_table
from specsim.errors import FormatError
from specsim.formats.drafted import drafted_positions, pooled_rates

MAX_LINES = 1_000_000
_SPEC = "SpecDecoding metrics:"
_V0 = "Speculative metrics:"
_NUMBER = r"(\d{1,15}(?:\.\d{1,12})?)"
_LABEL = re.compile(r"(Engine \d{1,4}):")
_DP = re.compile(r"^[^\]]{0,80}\b(DP\d{1,4})\b")
_STAMP = re.compile(r"(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)")
_ALONE = re.compile(r"Prefill batch.*#running-req: 0\b")
_RATES = re.compile(r"Per-position acceptance rate: ((?:\d?\.\d+|\d)(?:,\s*(?:\d?\.\d+|\d))*)")


_WORDS = {
    kind: {name: re.compile(rf"{words}\s*{_NUMBER}") for name, words in table.items()}
    for kind, table in data_table("catalog", "foreign.toml")["log"].items()
}


@dataclass(frozen=True)
class SpecInterval:
    """What one logging interval says; None where its lines do not say it.

    label: the engine of a data parallel server. at_s: its stamp, in whole seconds from any
    origin. since_s: seconds that accepted and drafted throughput cover, which is the time since
    the SpecDecoding line before, idle time included. after_idle: nothing ran at a moment since the
    line before, or nobody knows (None). configured_k: width of the printed list of rates."""

    engine: str  # "vllm" or "sglang"
    label: str = ""
    at_s: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    per_position: tuple[float, ...] = ()
    accepted_tokens: int | None = None
    draft_tokens: int | None = None
    num_drafts: float | None = None  # derived: see `_drafts`
    since_s: float | None = None
    generation_tok_s: float | None = None
    after_idle: bool | None = None
    configured_k: int | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    prefix_cache_hit_rate: float | None = None
    since_start: bool = False  # V0's totals, which are of no interval


def looks_like_spec_log(text: str) -> bool:
    """Whether text holds at least one line that `parse_spec_log` reads."""
    return (
        _SPEC in text
        or _V0 in text
        or ("Decode batch" in text and "#running-req:" in text)
        or ("Avg generation throughput:" in text)
    )


def parse_spec_log(text: str, origin: str) -> tuple[SpecInterval, ...]:
    """All intervals of a pasted log; FormatError when a line is cut or none is found."""
    out: list[SpecInterval] = []
    engine: SpecInterval | None = None
    totals: SpecInterval | None = None
    alone: dict[str, bool] = {}  # by rank, once a Prefill line was seen
    for number, line in enumerate(text.splitlines()[:MAX_LINES], 1):
        where = f"{origin}: line {number}: "
        if _SPEC in line:
            before = engine or SpecInterval("vllm", at_s=_seconds(line))
            out.append(_vllm(line[line.index(_SPEC) :], before, where))
            engine = None
        elif _V0 in line:
            totals = _v0(line, where)
        elif "Avg generation throughput:" in line:
            if engine is not None:
                out.append(engine)
            engine = _engine(line)
        elif "Decode batch" in line and "#running-req:" in line:
            item = _sglang(line)
            out.append(replace(item, after_idle=alone.get(item.label)))
            if alone:
                alone[item.label] = False
        elif "Prefill batch" in line and "#running-req:" in line:
            label = _rank(line)
            alone[label] = alone.get(label, False) or _ALONE.search(line) is not None
    if engine is not None:
        out.append(engine)
    if totals is not None:
        out.append(totals)
    if not out:
        raise FormatError(
            f"{origin}: no line with '{_SPEC}', 'Avg generation throughput:' or 'Decode batch'; "
            "paste the server's log lines whole"
        )
    return tuple(out)


def pooled_counts(intervals: Sequence[SpecInterval]) -> tuple[float, int, int] | None:
    """Drafts, drafted and accepted tokens over all vLLM intervals; None when they are unknown."""
    drafts, drafted, accepted = 0.0, 0, 0
    for item in intervals:
        if item.num_drafts is None or item.draft_tokens is None or item.accepted_tokens is None:
            continue
        drafts += item.num_drafts
        drafted += item.draft_tokens
        accepted += item.accepted_tokens
    return (drafts, drafted, accepted) if drafts > 0 else None


def pooled_positions(intervals: Sequence[SpecInterval]) -> tuple[float, ...]:
    """Unconditional per-position rates, each interval weighed by its drafts."""
    return pooled_rates(
        [(item.num_drafts, item.per_position) for item in intervals
         if item.per_position and item.num_drafts]
    )


def _seconds(line: str) -> float | None:
    """The stamp of a line in seconds; years are not written, so one is taken for all."""
    found = _STAMP.search(line)
    if found is None:
        return None
    month, day, hour, minute, second = map(int, found.groups())
    try:
        stamp = datetime(2000, month, day, hour, minute, second)
    except ValueError:
        return None
    return (stamp - datetime(2000, 1, 1)).total_seconds()


def _values(patterns: dict[str, re.Pattern[str]], line: str) -> dict[str, Any]:
    """The numbers (float) behind the words that the line has."""
    found = {name: pattern.search(line) for name, pattern in patterns.items()}
    return {name: float(match[1]) for name, match in found.items() if match}


def _vllm(line: str, engine: SpecInterval, where: str) -> SpecInterval:
    values = _values(_WORDS["vllm"], line)
    if "accepted_tokens" not in values or "draft_tokens" not in values:
        raise FormatError(
            f"{where}'{_SPEC}' without 'Accepted: N tokens' and 'Drafted: N tokens'; paste the "
            "whole line"
        )
    accepted, drafted = int(values["accepted_tokens"]), int(values["draft_tokens"])
    if accepted > drafted:
        raise FormatError(f"{where}{accepted} accepted tokens of {drafted} drafted ones")
    match = _RATES.search(line)
    rates = tuple(float(part) for part in match[1].split(",")) if match else ()
    if any(rate > 1 for rate in rates):
        raise FormatError(f"{where}a per-position acceptance rate above 1")
    length = values.get("acceptance_length")
    drafts = _drafts(accepted, drafted, length, rates)
    if length is None and drafts:
        length = 1 + accepted / drafts
    rate = values.get("accepted_tok_s")
    return replace(
        engine, acceptance_length=length, acceptance_rate=accepted / drafted if drafted else None,
        per_position=drafted_positions(rates, drafts, drafted), accepted_tokens=accepted,
        draft_tokens=drafted, num_drafts=drafts,
        since_s=accepted / rate if rate and accepted else None, configured_k=len(rates) or None,
    )


def _v0(line: str, where: str) -> SpecInterval:
    """V0's totals. A draft of k tokens emits those accepted before the first rejection and one
    more; "accepted tokens" and its rate count every token by itself, also behind a rejection."""
    values = _values(_WORDS["v0_totals"], line)
    k, drafted, emitted = (values.get(name, 0.0) for name in _WORDS["v0_totals"])
    if set(values) != set(_WORDS["v0_totals"]) or k < 1:
        raise FormatError(
            f"{where}'{_V0}' without the numbers of speculative, draft and emitted tokens; paste "
            "the whole line"
        )
    drafts = drafted / k
    if not drafts <= emitted <= drafts + drafted:
        raise FormatError(
            f"{where}{emitted:.0f} emitted tokens of {drafts:g} drafts of {k:.0f}; each emits 1 to "
            f"{k + 1:.0f}"
        )
    if not drafts:
        return SpecInterval("vllm", configured_k=int(k), since_start=True)
    return SpecInterval(
        "vllm", acceptance_length=emitted / drafts, acceptance_rate=(emitted - drafts) / drafted,
        accepted_tokens=round(emitted - drafts), draft_tokens=int(drafted), num_drafts=drafts,
        configured_k=int(k), since_start=True,
    )


def _drafts(
    accepted: int, drafted: int, length: float | None, rates: tuple[float, ...]
) -> float | None:
    """Number of drafts, which the line does not state.

    A proposer that always drafts k tokens made drafted / k of them; taken for the largest k up to
    the configured one that reproduces the printed acceptance length to its two decimals, and
    accepted nothing beyond it. Otherwise drafts were of varying length (n-gram, suffix) and their
    number follows from accepted / (length - 1), as far as rounding allows.
    """
    for k in range(len(rates), 0, -1):
        full = drafted / k
        if full and full == int(full) and (
            length is None or abs(1 + accepted / full - length) <= 0.0051
        ):
            return full
        if rates[k - 1] > 0 or length is None:
            break
    if length is not None and length > 1 and accepted:
        return accepted / (length - 1)
    if rates and sum(rates) > 0:
        return accepted / sum(rates)
    return None


def _engine(line: str) -> SpecInterval:
    """The engine's line: an interval without a draft until a SpecDecoding line follows."""
    label = _LABEL.search(line)
    shares = {name: value / 100 for name, value in _values(_WORDS["engine_percent"], line).items()}
    found = SpecInterval("vllm", label[1] if label else "", _seconds(line))
    return replace(found, **_values(_WORDS["engine"], line), **shares)


def _rank(line: str) -> str:
    """The data parallel rank of an SGLang line, '' where there is one alone."""
    found = _DP.search(line)
    return found[1] if found else ""


def _sglang(line: str) -> SpecInterval:
    values = _values(_WORDS["sglang"], line)
    if values.get("acceptance_length", 1.0) < 1:
        del values["acceptance_length"]
    return replace(SpecInterval("sglang", _rank(line), _seconds(line)), **values)
