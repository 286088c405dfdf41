"""Text of a growing answer: token by token, cut before the first stop string.

Text that could be the beginning of a stop string is held back until it is known not to be one, so
a stream never shows part of one. `min(start)` over all stop strings decides which one ended the
answer when several occur in one piece.
"""

from collections.abc import Sequence

from specsim.decoder.tokenizer import TextStream, Tokenizer


class AnswerText:
    """push() tokens one at a time; `stopped` holds the stop string once one was met."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._stream = TextStream(tokenizer)
        self._stops = tuple(stops)
        self._held = ""
        self.stopped: str | None = None

    def push(self, token: int) -> str:
        """Add a token; the text that may be shown. After a stop string: nothing."""
        return self._feed(self._stream.push((token,)))

    def finish(self) -> str:
        """What was held back, at the end of the answer."""
        text = self._feed(self._stream.finish())
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _feed(self, piece: str) -> str:
        if self.stopped is not None:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            # At one place, the longest: it names what was really written.
            at, self.stopped = min(found, key=lambda item: (item[0], -len(item[1])))
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of text that a longer stop string begins with."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0
