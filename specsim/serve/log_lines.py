"""vLLM's periodic log lines: throughput, load, and what speculation did since the last ones.

The wording is vLLM's (v1/metrics/loggers.py and v1/spec_decode/metrics.py, Apache-2.0), so that
whatever reads its logs reads these: "Engine 000: Avg prompt throughput: ..." and "SpecDecoding
metrics: Mean acceptance length: ...".
"""

from specsim.serve.engine_thread import EngineThread


class LogLines:
    """Reads the counters that the engine's thread leaves behind each step."""

    def __init__(self, thread: EngineThread) -> None:
        self._thread = thread
        self._before = thread.counts
        self._at_s = thread.engine.clock()

    def since_last(self) -> list[str]:
        """The lines of the interval that ends now; none when nothing ran in it."""
        thread = self._thread
        at_s, self._at_s = self._at_s, thread.engine.clock()
        before, self._before = self._before, thread.counts
        counted, seconds = self._before.since(before), max(self._at_s - at_s, 1e-9)
        prompt, generated = counted.num_prompt_tokens, counted.num_generation_tokens
        if not prompt and not generated:
            return []
        lines = [
            f"Engine 000: Avg prompt throughput: {prompt / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {generated / seconds:.1f} tokens/s, "
            f"Running: {thread.engine.num_running} reqs, Waiting: {thread.num_waiting} reqs, "
            f"GPU KV cache usage: {100 * thread.engine.pages.usage:.1f}%, "
            "Prefix cache hit rate: 0.0%"
        ]
        drafts = counted.num_drafts
        if drafts:
            drafted, accepted = counted.num_draft_tokens, counted.num_accepted_tokens
            rates = ", ".join(f"{n / drafts:.3f}" for n in counted.accepted_per_position)
            lines.append(
                f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
                f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
                f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
                f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
                f"Per-position acceptance rate: {rates}, "
                f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
            )
        return lines
