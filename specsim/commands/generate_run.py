"""One answer, measured: the engine's own step times, without the time of printing them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import SamplingParams
    from specsim.decoder.slots import StepOutput


@dataclass(frozen=True)
class Answer:
    """steps: (proposed, accepted) drafts of each decode step. prompt_s, decode_s: engine time."""

    token_ids: tuple[int, ...]
    finish_reason: str
    steps: tuple[tuple[int, int], ...]
    prompt_s: float
    decode_s: float

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens after the first per second of decoding; None when there was nothing to time."""
        later = len(self.token_ids) - 1
        return later / self.decode_s if later > 0 and self.decode_s > 0 else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens per decode step, steps without a draft included."""
        return (len(self.token_ids) - 1) / len(self.steps) if self.steps else None


class _Run:
    """A request alone on an engine, one step at a time."""

    def __init__(
        self, engine: "Engine", prompt_ids: Sequence[int], params: "SamplingParams"
    ) -> None:
        from specsim.decoder.slots import EngineRequest

        self._engine, self._max_tokens, self._tokens = engine, params.max_tokens, 0
        engine.timings.clear()
        engine.add(EngineRequest("generate", prompt_ids, params))

    @property
    def done(self) -> bool:
        return not self._engine.has_work

    @property
    def progress(self) -> float:
        """Share of the longest possible answer."""
        return self._tokens / self._max_tokens

    def step(self) -> "list[StepOutput]":
        outputs = self._engine.step()
        self._tokens += sum(len(output.token_ids) for output in outputs)
        return outputs

    def answer(self) -> Answer:
        result = self._engine.finished.pop("generate")
        timings = self._engine.timings
        return Answer(
            tuple(result.token_ids), result.finish_reason, tuple(result.steps),
            sum(t.wall_s for t in timings if not t.decode_seqs),
            sum(t.wall_s for t in timings if t.decode_seqs),
        )


def run_once(
    engine: "Engine", prompt_ids: Sequence[int], params: "SamplingParams",
    on_step: "Callable[[StepOutput], None] | None" = None,
) -> Answer:
    """Run one request alone. on_step: sees each step's output; its time is not counted."""
    run = _Run(engine, prompt_ids, params)
    while not run.done:
        for output in run.step():
            if on_step is not None:
                on_step(output)
    return run.answer()


def run_side_by_side(
    engines: "Sequence[Engine]", prompt_ids: Sequence[int], params: "SamplingParams"
) -> list[Answer]:
    """The request on each engine, their steps in turn: always of the one that is further behind.

    Whatever else the machine does then slows all of them alike. On a busy machine two runs one
    after the other gave speedups from 1.9 to 7.3 for the same request. Only for engines whose
    steps end when they return (CPU); a GPU's would be charged to the next engine.
    """
    runs = [_Run(engine, prompt_ids, params) for engine in engines]
    while left := [run for run in runs if not run.done]:
        min(left, key=lambda run: run.progress).step()
    return [run.answer() for run in runs]


@dataclass(frozen=True)
class Positions:
    """Acceptance by draft position 1..k, over the steps with drafts.

    drafted[i]: steps that proposed position i. accepted[i]: steps whose drafts up to i were all
    accepted. rates: accepted / steps with drafts (vLLM's unconditional rate). conditional:
    accepted / steps that proposed i and accepted all before it; None where there were none.
    """

    num_drafts: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    rates: tuple[float | None, ...]
    conditional: tuple[float | None, ...]

    @classmethod
    def of(cls, steps: Sequence[tuple[int, int]], k: int) -> "Positions":
        with_drafts = [(p, a) for p, a in steps if p]
        drafts = len(with_drafts)
        drafted, accepted, conditional = [], [], []
        for i in range(1, k + 1):
            hits = sum(a >= i for _, a in with_drafts)
            reached = sum(p >= i and a >= i - 1 for p, a in with_drafts)
            drafted.append(sum(p >= i for p, _ in with_drafts))
            accepted.append(hits)
            conditional.append(hits / reached if reached else None)
        rates = tuple(hits / drafts if drafts else None for hits in accepted)
        return cls(drafts, tuple(drafted), tuple(accepted), rates, tuple(conditional))

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per step with drafts, the bonus or recovered token included."""
        return 1 + sum(self.accepted) / self.num_drafts if self.num_drafts else None


@dataclass(frozen=True)
class SideBySide:
    """Runs of the same request with and without speculation."""

    speculative: tuple[Answer, ...]
    plain: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        return self.speculative[0]

    @staticmethod
    def _rate(answers: tuple[Answer, ...]) -> float | None:
        rates = [r for a in answers if (r := a.decode_tokens_per_s) is not None]
        return statistics.median(rates) if rates else None

    @property
    def tokens_per_s(self) -> float | None:
        """Median over the runs; as `plain_tokens_per_s`."""
        return self._rate(self.speculative)

    @property
    def plain_tokens_per_s(self) -> float | None:
        return self._rate(self.plain)

    @property
    def speedup(self) -> float | None:
        fast, slow = self.tokens_per_s, self.plain_tokens_per_s
        return fast / slow if fast and slow else None

    @property
    def first_difference(self) -> int | None:
        """Index of the first token that plain decoding has otherwise; None when all are equal or
        nothing was compared."""
        if not self.plain:
            return None
        ours, theirs = self.first.token_ids, self.plain[0].token_ids
        for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            if a != b:
                return i
        return min(len(ours), len(theirs)) if len(ours) != len(theirs) else None


def to_dict(result: SideBySide, k: int, greedy: bool) -> dict[str, object]:
    """Numbers of the runs, as --json prints them."""
    first, positions = result.first, Positions.of(result.first.steps, k)

    def entry(answers: tuple[Answer, ...], rate: float | None) -> dict[str, object]:
        return {
            "decode_tokens_per_s": rate,
            "tokens": len(answers[0].token_ids),
            "prompt_s": [a.prompt_s for a in answers],
            "decode_s": [a.decode_s for a in answers],
        }

    out: dict[str, object] = {
        "finish_reason": first.finish_reason,
        "token_ids": list(first.token_ids),
        "speculative": entry(result.speculative, result.tokens_per_s) | {
            "steps": len(first.steps),
            "tokens_per_step": first.tokens_per_step,
            "num_drafts": positions.num_drafts,
            "acceptance_length": positions.acceptance_length,
            "drafted_per_position": list(positions.drafted),
            "accepted_per_position": list(positions.accepted),
            "acceptance_rates": list(positions.rates),
            "conditional_acceptance_rates": list(positions.conditional),
        },
        "plain": None, "speedup": result.speedup, "same_text": None, "first_difference": None,
    }
    if result.plain:
        out["plain"] = entry(result.plain, result.plain_tokens_per_s)
        if greedy:
            out["same_text"] = result.first_difference is None
            out["first_difference"] = result.first_difference
    return out
