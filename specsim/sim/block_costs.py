"""What a request takes of the blocks of a cache."""

from dataclasses import dataclass

from specsim.errors import UsageError
from specsim.sim.limits import MAX_BLOCKS, whole


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """What a request takes of the cache's blocks, which are all of one size.

    full_blocks: per `block_size` tokens, for layers that keep everything. window_blocks: for layers
        that see the last window_tokens. state_blocks: per running request, whatever its length.
    keeps_last_window: of the layers with a window only what the end of a prompt needs is kept for
        those that come after; else all that was computed, until others take it.
    """

    full_blocks: int = 1
    window_blocks: int = 0
    window_tokens: int = 0
    state_blocks: int = 0
    keeps_last_window: bool = False

    def __post_init__(self) -> None:
        for name in ("full_blocks", "window_blocks", "window_tokens", "state_blocks"):
            whole(name, getattr(self, name), 0)
        if self.window_blocks and not self.window_tokens:
            raise UsageError(
                f"window_blocks is {self.window_blocks}, but window_tokens is 0; say how long the "
                "window is"
            )

    def window_units(self, step_tokens: int, block_size: int) -> int:
        """Units of `block_size` tokens of a window that a request holds at most: vLLM's cap, the
        window before a step and the step's prompt tokens."""
        tokens = self.window_tokens - 1 + step_tokens
        return -(-tokens // block_size) + 1

    def longest(self, blocks: int, step_tokens: int, block_size: int) -> int:
        """Tokens of the longest request for which `blocks` are enough."""
        left = blocks - self.state_blocks
        units = left // max(1, self.full_blocks + self.window_blocks)
        windows = self.window_units(step_tokens, block_size)
        if self.window_blocks and units > windows and self.full_blocks:
            units = (left - windows * self.window_blocks) // self.full_blocks
        if not self.full_blocks and left >= windows * self.window_blocks:
            units = MAX_BLOCKS // block_size
        return units * block_size
