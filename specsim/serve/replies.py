"""Bodies of responses and stream chunks, as OpenAI's API and vLLM shape them.

A stream has one chunk per verify step of an answer (with the step's tokens together), so that a
client's gaps between chunks are vLLM's inter-token latency; it may have empty text when a
character is not complete yet.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from specsim.serve.engine_thread import Update
from specsim.serve.protocol import Call


@dataclass(slots=True)
class AnswerChoice:
    """One choice as it grows."""

    num_prompt_tokens: int
    text: list[str] = field(default_factory=list)
    last: Update = field(default_factory=Update)

    def add(self, update: Update) -> None:
        self.text.append(update.text)
        self.last = update


class Replies:
    """Builds the bodies of one HTTP request. spec_metrics: none, summary or detailed; k: drafts."""

    def __init__(self, call: Call, model_name: str, answers: Sequence[AnswerChoice],
                 spec_metrics: str, k: int) -> None:
        self.answers = answers
        self._call, self._spec, self._k = call, spec_metrics, k
        self.request_id = ("chatcmpl-" if call.chat else "cmpl-") + uuid.uuid4().hex
        self._head = {"id": self.request_id, "created": int(time.time()), "model": model_name}

    # A prompt with n answers counts once, as in OpenAI's API.
    def _usage(self) -> dict[str, int]:
        prompt = sum(a.num_prompt_tokens for a in self.answers[:: self._call.n])
        completion = sum(a.last.num_tokens for a in self.answers)
        return {"prompt_tokens": prompt, "completion_tokens": completion,
                "total_tokens": prompt + completion}

    def whole(self) -> dict[str, object]:
        """The response of a request that is not streamed."""
        choices = []
        for index, answer in enumerate(self.answers):
            content = self._content("message", "".join(answer.text), with_role=True)
            choices.append({"index": index, **content, **_end(answer.last)})
        body = {**self._head, "object": self._object(False), "choices": choices,
                "usage": self._usage()}
        return body | self._metrics(self.answers)

    def chunk(self, index: int, update: Update, first: bool) -> dict[str, object]:
        """The chunk of one update. first: of this answer (chat names the role in it)."""
        content = self._content("delta", update.text, with_role=first)
        choice = {"index": index, **content, **_end(update)}
        chunk = {**self._head, "object": self._object(True), "choices": [choice]}
        if self._call.stream_options.continuous_usage_stats:
            chunk["usage"] = self._usage()
        elif self._call.stream_options.include_usage:
            chunk["usage"] = None
        if update.final:
            chunk |= self._metrics([self.answers[index]])
        return chunk

    def usage_chunk(self) -> dict[str, object]:
        """The last chunk of a stream whose client asked for usage."""
        return {**self._head, "object": self._object(True), "choices": [], "usage": self._usage()}

    def _content(self, name: str, text: str, with_role: bool) -> dict[str, object]:
        if not self._call.chat:
            return {"text": text}
        role = {"role": "assistant"} if with_role else {}
        return {name: {**role, "content": text}}

    def _object(self, stream: bool) -> str:
        if not self._call.chat:
            return "text_completion"
        return "chat.completion.chunk" if stream else "chat.completion"

    def _metrics(self, answers: Sequence[AnswerChoice]) -> dict[str, object]:
        """vLLM gives these for single answers only."""
        if self._spec == "none" or self._k == 0 or len(answers) != 1:
            return {}
        found = spec_metrics(answers[0].last.spec_steps, self._k, self._spec == "detailed")
        return {"metrics": {"speculative_decoding": found}}


def _end(update: Update) -> dict[str, object]:
    return {"logprobs": None, "finish_reason": update.finish_reason or None,
            "stop_reason": update.stop_reason}


def spec_metrics(steps: Sequence[tuple[int, int]], k: int, detailed: bool) -> dict[str, object]:
    """Speculation of one request: (proposed, accepted) of its steps with drafts.

    acceptance_histogram[j]: steps that accepted exactly j drafts.
    """
    drafted = sum(proposed for proposed, _ in steps)
    accepted = sum(count for _, count in steps)
    histogram = [0] * (k + 1)
    for _, count in steps:
        histogram[count] += 1
    out: dict[str, object] = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_histogram": histogram, "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted, "num_draft_tokens": drafted, "num_spec_tokens": k,
    }
    if detailed:
        out["per_step_accepted"] = [count for _, count in steps]
        out["per_step_drafted"] = [proposed for proposed, _ in steps]
    return out
