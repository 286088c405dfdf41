"""One answer of `specsim generate`, measured by the engine's own step times, without the time of
printing them; and how it looks.

Accepted drafts are green; a rejected draft is red and struck through, followed by the token that
replaced it. Colour is for terminals only, and off where NO_COLOR is set (https://no-color.org).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from specsim.report.layout import coloured
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import SamplingParams
    from specsim.decoder.slots import StepOutput
    from specsim.decoder.tokenizer import Tokenizer


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


GREEN, STRUCK, RESET = "\x1b[32m", "\x1b[31;9m", "\x1b[0m"


def use_color(stream: TextIO, choice: str = "auto") -> bool:
    """Whether to colour: 'always', 'never', or by the stream and the environment."""
    if choice != "auto":
        return choice == "always"
    return coloured(stream)


def harmless(text: str) -> str:
    """Text without the control characters that could drive a terminal."""
    return "".join(
        "�" if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" else c for c in text
    )


class LiveText:
    """Writes the answer step by step. color: show drafts. terminal: keep control characters out."""

    def __init__(self, tokenizer: "Tokenizer", write: Callable[[str], object], *, color: bool,
                 terminal: bool) -> None:
        from specsim.decoder.tokenizer import TextStream

        self._tokenizer, self._stream = tokenizer, TextStream(tokenizer)
        self._write, self._color, self._terminal = write, color, terminal
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """The answer so far, without colour."""
        return "".join(self._parts)

    def step(self, output: "StepOutput") -> None:
        accepted = min(output.num_accepted, len(output.token_ids))
        for token in output.token_ids[:accepted]:
            self._show(self._stream.push((token,)), GREEN)
        rest = output.token_ids[accepted:]
        if rest and output.num_accepted < len(output.drafts):
            self._rejected(output.drafts[output.num_accepted])
        for token in rest:
            self._show(self._stream.push((token,)), "")
        if output.finished:
            self._show(self._stream.finish(), "")

    def _show(self, piece: str, color: str) -> None:
        if not piece:
            return
        self._parts.append(piece)
        if self._terminal:
            piece = harmless(piece)
        self._write(f"{color}{piece}{RESET}" if color and self._color else piece)

    def _rejected(self, token: int) -> None:
        if self._color:
            piece = harmless(self._tokenizer.decode([token], skip_special=False))
            self._write(f"{STRUCK}{piece.replace(chr(10), '⏎')}{RESET}")


def report_text(result: SideBySide, what: str, k: int, *, greedy: bool, dtype: str) -> str:
    """The numbers under the answer. what: model, drafter and threads in words."""
    first, positions = result.first, Positions.of(result.first.steps, k)
    lines = [f"{what}; prompt in {first.prompt_s:.2f} s"]
    runs = len(result.speculative)
    each = f", median of {runs} runs" if runs > 1 else ""
    steps = ""
    if first.tokens_per_step is not None and k:
        steps = (f", {first.tokens_per_step:.2f} tokens/step in "
                 f"{counted(len(first.steps), 'step')}, {positions.num_drafts} of them with drafts")
    name = "speculative" if k else "plain"
    tokens = counted(len(first.token_ids), "token")
    lines.append(f"{name:<12}{_rate(result.tokens_per_s)}, {tokens}{steps}{each}")
    if result.plain:
        plain = result.plain[0]
        lines.append(f"{'plain':<12}{_rate(result.plain_tokens_per_s)}, "
                     f"{counted(len(plain.token_ids), 'token')}, one per step{each}")
        if result.speedup is not None:
            lines.append(f"{'speedup':<12}{result.speedup:.2f}x; {_same(result, greedy, dtype)}")
    if positions.acceptance_length is not None:
        length = positions.acceptance_length
        lines.append(f"{'acceptance':<12}{length:.2f} tokens per step with drafts")
        rows = (("position", [str(i) for i in range(1, k + 1)]),
                ("drafted", [str(n) for n in positions.drafted]),
                ("accepted", [str(n) for n in positions.accepted]),
                ("rate", [_share(r) for r in positions.rates]),
                ("if reached", [_share(r) for r in positions.conditional]))
        lines += [f"  {label:<10}" + "".join(f"{cell:>7}" for cell in cells)
                  for label, cells in rows]
    return "\n".join(lines) + "\n"


def _rate(tokens_per_s: float | None) -> str:
    return "too short to time" if tokens_per_s is None else f"{tokens_per_s:.1f} tokens/s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _same(result: SideBySide, greedy: bool, dtype: str) -> str:
    at = result.first_difference
    if not greedy:
        return "sampled, so the two texts differ and only their distribution is the same"
    if at is None:
        return "the text is the same as without drafts"
    if dtype == "fp32":
        return f"the texts differ from token {at + 1} on"
    return (f"the texts differ from token {at + 1} on: {dtype} rounds differently for different "
            "numbers of positions, fp32 does not")
