"""The load that a published row states, and what was measured under it."""

import math
import re
from collections.abc import Mapping

from specsim.accuracy.lookups import SkipRow, dataset_lengths, measurement, number, whole
from specsim.analytic.workload import Workload

QUEUED_TTFT_S = 5.0
# Serving benchmarks with a known command send so many prompts per client: InferenceX ten, the
# commands of SGLang's cookbook five (80 for 16 clients, 500 for 100; 10 for one).
INFERENCEX_PER_CLIENT = 10
COOKBOOK_PER_CLIENT = 5
# InferenceX draws both lengths uniformly from 0.8 to 1 of the nominal ones (its bench_serving).
INFERENCEX_RANGE = 0.8
UNIFORM_SPREAD = 1 / math.sqrt(3)  # of lengths uniform from 1 to L: SGLang's default
# Every turn re-sends a long shared prefix that the cache holds.
_PREFIX = re.compile(r"(\d+)K prefix \+ (\d+)k/(\d+)k")
# Times that a source states in words.
_TTFT_NOTE = re.compile(r"TTFT ([\d.]+)(?:/([\d.]+))? ms")
_MEASURED_COLUMNS = (
    "baseline_tok_s", "spec_tok_s", "baseline_tpot_ms", "spec_tpot_ms", "ttft_ms", "speedup",
)
_ARRIVALS = ("", "closed", "burst")


def published_workload(
    row: Mapping[str, str], clients: int, random_lengths: bool = False
) -> Workload:
    """Lengths, cached prompts and number of prompts of a row. random_lengths: see
    `latency.engine_profile.Server`. SkipRow for cells of the load that contradict each other."""
    dataset = row.get("dataset") or ""
    prefix = _PREFIX.search(dataset)
    if prefix:
        cached, new, output = (int(g) * 1024 for g in prefix.groups())
        return Workload(cached + new, output, cached / (cached + new), name="row")
    isl, osl = whole(row.get("isl")), whole(row.get("osl"))
    default = dataset_lengths(dataset)
    if osl and (row.get("osl") or "").lstrip().startswith("<"):  # a limit, which few answers reach
        default, osl = (default[0], min(default[1], osl)), None
    input_len, output_len = isl or default[0], osl or default[1]
    source = (row.get("source") or "").lower()
    if source.startswith(("inferencex", "inferencemax")) and isl and osl:
        return inferencex_workload(isl, osl, acceptance_pinned(row))
    return Workload(
        input_len, output_len, cached_share(row, input_len), name="row",
        spread=_spread(row, isl, osl, random_lengths), pinned=acceptance_pinned(row),
        requests_per_client=_per_client(row, clients) if isl and osl else 0,
    )


def inferencex_workload(isl: int, osl: int, pinned: bool = False) -> Workload:
    """The load of InferenceX's benchmark, of its nominal lengths."""
    mean = (1 + INFERENCEX_RANGE) / 2
    spread = (1 - INFERENCEX_RANGE) / math.sqrt(12) / mean
    return Workload(
        round(mean * isl), round(mean * osl), name="row", spread=spread, pinned=pinned,
        requests_per_client=INFERENCEX_PER_CLIENT,
    )


def _synthetic(row: Mapping[str, str]) -> bool:
    """Whether prompts are random tokens; the second file's pages say so in the notes."""
    return "random" in (row.get("dataset") or "") or "random" in (row.get("notes") or "")


def _spread(
    row: Mapping[str, str], isl: int | None, osl: int | None, random_lengths: bool
) -> float:
    """Spread of the output lengths. A synthetic benchmark that states nominal lengths (1024, 8000)
    sends exactly those; SGLang's default is uniform from 1, and a row that states means tells it
    by them (610, 421)."""
    if not (isl and osl and (_synthetic(row) or row.get("num_prompts"))):
        return 1.0
    nominal = all(n % 64 == 0 or n % 100 == 0 for n in (isl, osl))
    return UNIFORM_SPREAD if random_lengths and not nominal else 0.0


def _per_client(row: Mapping[str, str], clients: int) -> int:
    """Requests that each client sends. Where a table says nothing, its prompts are as many as its
    clients, all sent at once, as in the commands of vLLM's recipes; the pages of SGLang's cookbook
    and InferenceX follow commands that are known."""
    sent = _stated(row, "num_prompts")
    if sent:
        return max(1, round(sent / clients))
    if not _synthetic(row):
        return INFERENCEX_PER_CLIENT
    source = (row.get("source") or "").lower()
    if "cookbook" in source or "cookbook" in (row.get("notes") or ""):
        return INFERENCEX_PER_CLIENT if clients == 1 else COOKBOOK_PER_CLIENT
    return 1


def median_stated(row: Mapping[str, str]) -> bool:
    """Whether the row's time to first token is a median. (SGLang's cookbook prints both; of its
    blocks the median was taken: the means of their short runs would hold the start.)"""
    notes = row.get("notes") or ""
    return bool(re.search(r"median lat|\bP50\b|\bp50\b|cookbook block", notes))


def cached_share(row: Mapping[str, str], input_len: int) -> float:
    """Share of the prompt that the row says was cached."""
    cached = _stated(row, "cached_tokens")
    if cached >= input_len:
        raise SkipRow(f"cached_tokens is {cached}, but the prompt has {input_len} tokens")
    return cached / input_len


def arrival(row: Mapping[str, str]) -> str:
    """'closed' (clients that wait for their answers) or 'burst' (all requests at once: where a
    row's load says so, its column need not)."""
    text = (row.get("arrival") or "").strip().lower()
    if not text and "at once" in (row.get("batch_or_concurrency") or ""):
        return "burst"
    if text not in _ARRIVALS:
        raise SkipRow(f"arrival not modelled: {text[:30]}")
    return text or "closed"


def acceptance_pinned(row: Mapping[str, str]) -> bool:
    """Whether a setting gave the acceptance, so that it is alike for all requests."""
    text = (row.get("acceptance_pinned") or "").strip().lower()
    if text not in ("", "no", "yes"):
        raise SkipRow(f"acceptance_pinned is {text[:30]!r}; it must be yes, no or empty")
    return text == "yes"


def _stated(row: Mapping[str, str], column: str) -> int:
    """A count of the load, 0 where the row has none."""
    text = (row.get(column) or "").strip()
    if not text:
        return 0
    if not re.fullmatch(r"\d{1,9}", text):
        raise SkipRow(f"{column} is {text[:30]!r}; it must be a whole number or empty")
    return int(text)


def acceptance_length(row: Mapping[str, str], k: int, chain: bool) -> float | None:
    """Mean tokens of a verify step with the bonus token. Where a source states it otherwise, it
    follows: 1 + the cumulative rates by position or, in a chain, 1 + k times the accepted share."""
    stated = number(row.get("mean_accepted_length"))
    if stated is not None:
        return stated
    rates = [float(r) for r in re.findall(r"\d*\.?\d+", row.get("per_pos_acceptance") or "")]
    if 0 < k == len(rates) and rates == sorted(rates, reverse=True) and rates[-1] > 0:
        scale = 100.0 if rates[0] > 1 else 1.0
        return 1 + sum(rates) / scale if rates[0] <= scale else None
    share = row.get("acceptance_rate") or ""
    if chain and re.fullmatch(r"0?\.\d+", share):
        return 1 + k * float(share)
    return None


def running_batch(row: Mapping[str, str], measured: dict[str, float], concurrency: int) -> int:
    """Requests that really ran together, of a row whose clients mostly waited outside: tokens per
    second times seconds per token. The wait itself, for a limit that is not stated, is not
    judged."""
    del measured["ttft_s"]
    for side in ("baseline", "spec"):
        rate = number(row.get(f"{side}_tok_s"))
        tpot_s = measured.get(f"{side}_tpot_s")
        if rate and tpot_s:
            return max(1, min(concurrency, round(rate * tpot_s)))
    return concurrency


def measured_values(row: Mapping[str, str], speculates: bool) -> dict[str, float]:
    """What the row measured, in seconds and tokens per second. SkipRow where there is nothing, or
    only what tells of no single deployment."""
    out: dict[str, float] = {}
    notes = row.get("notes") or ""
    meaning = (row.get("tok_s_meaning") or "").lower()
    if not meaning and "arrival" in row and "per GPU" not in notes:
        meaning = "system output"  # the layout with the load's own columns holds nothing else
    for side in ("baseline", "spec"):
        tpot = measurement(row.get(f"{side}_tpot_ms"))
        rate = measurement(row.get(f"{side}_tok_s"))
        if tpot:
            out[f"{side}_tpot_s"] = tpot / 1e3
        elif rate and ("per-user" in meaning or "per-stream" in meaning):
            out[f"{side}_tpot_s"] = 1 / rate
        elif rate and meaning.startswith("system output"):
            out[f"{side}_output_tok_s"] = rate
    speedup = measurement(row.get("speedup"))
    if speedup:
        out["speedup"] = speedup
    ttft = measurement(row.get("ttft_ms"))
    noted = _TTFT_NOTE.search(notes)
    if noted and not ttft:
        plain, with_drafts = noted.groups()
        ttft = measurement(with_drafts if speculates and with_drafts else plain)
    if ttft:
        out["ttft_s"] = ttft / 1e3
    if not out:
        if not any(row.get(column) for column in _MEASURED_COLUMNS):
            raise SkipRow("acceptance only: no time and no rate measured")
        raise SkipRow("nothing measured that is predicted here")
    if "per gpu" in meaning and "total" not in meaning:
        raise SkipRow("throughput per GPU of a saturated offline run")
    return out


def gain_of_rates(row: Mapping[str, str]) -> bool:
    """Whether the stated speedup is the ratio of the token rates and not that of the times."""
    gain = measurement(row.get("speedup"))
    slow, fast = (measurement(row.get(f"{side}_tpot_ms")) for side in ("baseline", "spec"))
    before, after = (measurement(row.get(f"{side}_tok_s")) for side in ("baseline", "spec"))
    if not (gain and slow and fast and before and after):
        return False
    return abs(after / before - gain) < abs(slow / fast - gain)
