"""Timings that llama.cpp's server logs at the end of each request.

    prompt eval time =     140.02 ms /    14 tokens (...)
           eval time =    4513.28 ms /   300 tokens (...)
    draft acceptance = 0.57576 (  171 accepted /   297 generated), mean len =  2.35

(tools/server/server-context.cpp of llama.cpp, MIT.) The first token comes with the prompt, every
accepted draft took no step of its own, so n tokens took n - 1 - accepted rounds. Without the mean
length (older: "draft acceptance rate = ...") drafts are not counted, as they vary in length.

Where a state cannot be cut back (hybrid models: "speculative decoding will use checkpoints") a
round that is accepted in part is run again with what was accepted. Versions with the mean length
count that round once, older ones only the second, whole run: their acceptance says nothing and is
left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.errors import FormatError
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.record import BenchAcceptance, BenchRun, Stat
from specsim.formats.bench.stats import stat_of, with_derived

NAME = "llama.cpp server log"
MAX_LINES = 1_000_000
_TIME = r"eval time =\s*(\d{1,12}(?:\.\d{1,6})?) ms /\s*(\d{1,10}) tokens"
_PROMPT = re.compile(r"prompt " + _TIME)
_EVAL = re.compile(_TIME)
_DRAFTS = re.compile(
    r"draft acceptance(?: rate)? =\s*[\d.]{1,12} "
    r"\(\s*(\d{1,10}) accepted /\s*(\d{1,10}) generated\)"
    r"(?:, mean len =\s*(\d{1,6}\.\d{1,6}))?"
)
_AGAIN = re.compile(r"will use checkpoints|restore checkpoint\)|speculative checkpoint")
_MANY = 100  # drafted tokens, all of them accepted: partly accepted rounds were not counted


@dataclass(frozen=True)
class _Request:
    prompt_tokens: int | None
    decode_s: float
    tokens: int
    accepted: int = 0
    drafted: int = 0
    mean_len: float | None = None

    @property
    def rounds(self) -> int:
        """Rounds after the prompt; the last one may have been cut."""
        return max(0, self.tokens - 1 - self.accepted)

    @property
    def drafts(self) -> float | None:
        if not self.drafted:
            return 0.0
        if self.mean_len is None or (self.mean_len <= 1 and self.accepted):
            return None
        return self.accepted / (self.mean_len - 1) if self.accepted else None


def matches(document: ResultFile) -> bool:
    return not document.is_json and _EVAL.search(document.text) is not None


def read(document: ResultFile) -> list[BenchRun]:
    """One run of all requests in the log. FormatError when one accepts more than it drafts."""
    requests = _requests(document)
    whole = [one for one in requests if one.tokens > 1]
    drafted = sum(one.drafted for one in whole)
    accepted = sum(one.accepted for one in whole)
    rounds = sum(one.rounds for one in whole)
    again = _AGAIN.search(document.text) is not None
    counted = all(one.mean_len is not None for one in whole if one.drafted)
    blind = drafted > 0 and not counted and (again or (drafted == accepted and drafted >= _MANY))
    warnings = ["times are of requests one by one, whatever else the server ran"]
    value = share = acceptance = None
    if blind:
        warnings.append(
            "acceptance and tokens per step are left out: this version counts only whole rounds "
            "where a model's state cannot be cut back (hybrids); newer ones print 'mean len'"
        )
    elif rounds > 0:
        value = (rounds + accepted) / rounds
        acceptance, share = _acceptance(whole, drafted, accepted, rounds)
        warnings.append(
            f"tokens per step are over {rounds} rounds: decoded tokens less accepted ones"
        )
        if again:
            warnings.append(
                "a round that was accepted in part ran twice (the model's state cannot be cut "
                "back), so rounds are more passes than counted"
            )
    decode_s = sum(one.decode_s for one in whole)
    known = [one.prompt_tokens for one in requests if one.prompt_tokens is not None]
    run = BenchRun(
        source=document.origin, format=NAME, engine="llama.cpp", completed=len(requests),
        input_tokens=sum(known) if len(known) == len(requests) else None,
        output_tokens=sum(one.tokens for one in requests),
        tpot_s=stat_of(one.decode_s / (one.tokens - 1) for one in whole),
        itl_s=Stat(decode_s / rounds, count=rounds, basis="derived") if value else None,
        acceptance=acceptance, tokens_per_step=value,
        tokens_per_step_basis="counters" if value else None, draft_share=share,
        warnings=tuple(warnings),
    )
    return [with_derived(run)]


def _acceptance(
    whole: Sequence[_Request], drafted: int, accepted: int, rounds: int
) -> tuple[BenchAcceptance | None, float | None]:
    """(acceptance, share of rounds with a draft), each as far as it was counted."""
    if not drafted:
        return None, None
    counts = [one.drafts for one in whole]
    drafts = None if None in counts else sum(count or 0.0 for count in counts)
    found = BenchAcceptance(
        acceptance_length=1 + accepted / drafts if drafts else None,
        acceptance_rate=accepted / drafted, num_drafts=round(drafts) if drafts else None,
        draft_tokens=drafted, accepted_tokens=accepted,
    )
    return found, min(1.0, drafts / rounds) if drafts else None


def _requests(document: ResultFile) -> list[_Request]:
    out: list[_Request] = []
    prompt: int | None = None
    for number, line in enumerate(document.text.splitlines()[:MAX_LINES], 1):
        if found := _PROMPT.search(line):
            prompt = int(found[2])
        elif found := _EVAL.search(line):
            out.append(_Request(prompt, float(found[1]) / 1000, int(found[2])))
            prompt = None
        elif (found := _DRAFTS.search(line)) and out:
            accepted, drafted = int(found[1]), int(found[2])
            if accepted > drafted:
                raise FormatError(
                    f"{document.origin}: line {number}: {accepted} accepted tokens of {drafted} "
                    "drafted ones; paste the server's lines as they are"
                )
            mean = float(found[3]) if found[3] else None
            out[-1] = replace(out[-1], accepted=accepted, drafted=drafted, mean_len=mean)
    return out
