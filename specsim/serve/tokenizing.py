"""Prompts to token ids, in two worker threads: long texts never hold up short ones.

Tokenising takes about a second per megabyte and cannot be stopped once it runs, so a text is
refused by its size before, and both threads take one text list at a time. What waits for them
belongs to an admitted request, so the requests that can be open bound the queues too; a request
whose client leaves gives up its place.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from specsim.decoder.tokenizer import Tokenizer
from specsim.errors import SpecSimError
from specsim.serve.errors import bad
from specsim.serve.protocol import Call

SHORT_BYTES = 4096  # a millisecond or two


class TokenizingPool:
    """most_bytes: texts above it cannot fit max_model_len tokens, whatever they are."""

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self.most_bytes = max_model_len * tokenizer.longest_token_bytes
        self._short, self._long = (
            ThreadPoolExecutor(1, thread_name_prefix=f"specsim-tokenize-{kind}")
            for kind in ("short", "long")
        )

    async def encode(self, call: Call) -> list[tuple[int, ...]]:
        """Token ids of each prompt of a request; ApiError (400) for a text that is too long."""
        size = call.text_bytes()
        lane = self._short if size <= SHORT_BYTES else self._long
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(lane, call.encode, self._tokenizer, self.most_bytes)
        except SpecSimError as error:
            raise bad(str(error), call.source) from None

    def close(self) -> None:
        for lane in (self._short, self._long):
            lane.shutdown(wait=False, cancel_futures=True)
