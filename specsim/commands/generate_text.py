"""How `specsim generate` looks: the answer as it comes, with its drafts in colour, and the report.

Accepted drafts are green; a rejected draft is red and struck through, followed by the token that
replaced it. Colour is for terminals only, and off where NO_COLOR is set (https://no-color.org).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from specsim.commands.generate_run import Positions, SideBySide
from specsim.report.layout import coloured
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.decoder.slots import StepOutput
    from specsim.decoder.tokenizer import Tokenizer

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
