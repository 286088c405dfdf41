"""What the prompts of a trace share: hash ids of blocks, or prefixes and prompts by number."""

from collections.abc import Mapping
from pathlib import Path

from specsim.errors import FormatError, shown
from specsim.formats.trace_rows import id_at, tokens_at


def hash_spans(
    ids: object, prompt: int, block: int, path: Path, line: int
) -> tuple[tuple[int, int], ...]:
    """One piece per hash id; the last one covers what is left of the prompt."""
    if not isinstance(ids, list):
        raise FormatError(f"{path.name}: line {line}: hash_ids is {shown(ids)}; it must be a list")
    spans, left = [], prompt
    for key in ids:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 61:
            raise FormatError(
                f"{path.name}: line {line}: hash id {shown(key)} must be a whole number below 2**61"
            )
        if left <= 0:
            break
        spans.append((key, min(block, left)))
        left -= block
    return tuple(spans)


def shared_spans(
    row: Mapping[str, object], prompt: int, path: Path, line: int
) -> tuple[tuple[int, int], ...]:
    """The pieces that the columns prefix, prefix_tokens and prompt describe; keys of prefixes are
    even, those of prompts odd."""
    prefix, own = id_at(row, "prefix", path, line), id_at(row, "prompt", path, line)
    shared = 0
    if prefix >= 0:
        shared = tokens_at(row.get("prefix_tokens"), "prefix_tokens", path, line)
        if shared > prompt:
            raise FormatError(
                f"{path.name}: line {line}: prefix_tokens is {shared}, but the prompt has {prompt}"
            )
    pieces = [(2 * prefix, shared)] if shared else []
    if own >= 0 and prompt > shared:
        pieces.append((2 * own + 1, prompt - shared))
    return tuple(pieces)


class Chains:
    """Conversations by the blocks of their prompts: the next prompt of one begins with all whole
    blocks of the last, whose last one nobody else has sent."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}  # session that sent a block first
        self._ends: set[int] = set()  # last whole blocks of prompts
        self._count = 0

    def session(self, spans: tuple[tuple[int, int], ...], block: int) -> int:
        """The conversation that a prompt with these pieces belongs to, maybe a new one."""
        keys = [key for key, tokens in spans if tokens == block]
        if not keys:
            return -1
        known = next((key for key in reversed(keys) if key in self._first), None)
        if known is not None and known in self._ends:
            session = self._first[known]
        else:
            session, self._count = self._count, self._count + 1
        for key in keys:
            self._first.setdefault(key, session)
        if self._first[keys[-1]] == session:
            self._ends.add(keys[-1])
        return session
