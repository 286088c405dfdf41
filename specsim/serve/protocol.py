"""What a request body asks for: OpenAI's completions and chat, with vLLM's additions.

Beyond OpenAI's fields: top_k (0 or -1 is off), ignore_eos, stop_token_ids, min_tokens (with
ignore_eos), stream_options.continuous_usage_stats. As in vLLM, temperature and top_p default to 1,
max_tokens to 16 for completions and to the rest of the context for chat, and unknown fields are
ignored. A known field that would change the answer and is not supported (logprobs, penalties,
tools, ...) is refused unless it has the value that means "off": silence would be a wrong answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsim.decoder.options import MAX_STOP_IDS, SamplingParams
from specsim.errors import UsageError
from specsim.serve.errors import ApiError, bad
from specsim.serve.fields import Fields, clean_text, shown, token_ids, wrong
from specsim.serve.settings import MAX_SEQUENCES

MAX_STOPS, MAX_STOP_CHARS = 16, 1000
_INT64 = 1 << 63

# Field -> values that mean "off". None (JSON null) always does.
_OFF: dict[str, tuple[object, ...]] = {
    "logprobs": (False,), "top_logprobs": (0,), "prompt_logprobs": (), "echo": (False,),
    "suffix": ("",), "best_of": (1,), "presence_penalty": (0,), "frequency_penalty": (0,),
    "repetition_penalty": (1,), "length_penalty": (1,), "min_p": (0,), "logit_bias": ({},),
    "bad_words": ([],), "use_beam_search": (False,), "tools": ([],), "functions": ([],),
    "tool_choice": ("none", "auto"), "response_format": ({"type": "text"},),
    "guided_json": (), "guided_regex": (), "guided_choice": (), "guided_grammar": (),
    "structured_outputs": (), "truncate_prompt_tokens": (), "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,), "return_token_ids": (False,), "modalities": (["text"],),
    "audio": (), "prediction": (), "prompt_embeds": (),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. prompts: texts or token ids (completions), else messages (chat).

    max_tokens None: the rest of the context. n: answers per prompt.
    """

    chat: bool
    prompts: tuple[str | tuple[int, ...], ...]
    messages: tuple[dict[str, str], ...]
    n: int
    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool

    def params(self, prompt_len: int, max_model_len: int, answer: int) -> SamplingParams:
        """Sampling parameters for a prompt of that many tokens; answer: 0 .. n-1.

        With a seed, each answer has a seed of its own, as in vLLM. Raises ApiError when prompt and
        answer cannot fit, or a value is outside the engine's range.
        """
        room = max_model_len - prompt_len
        wanted = self.max_tokens if self.max_tokens is not None else max(room, 1)
        if wanted > room:
            raise bad(
                f"this model's maximum context length is {max_model_len} tokens; the prompt has "
                f"{prompt_len} and the answer may have {wanted}; shorten the prompt or max_tokens",
                "messages" if self.chat else "prompt", "context_length_exceeded",
            )
        seed = None if self.seed is None else (self.seed + answer + _INT64) % (2 * _INT64) - _INT64
        try:
            return SamplingParams(
                max_tokens=wanted, temperature=self.temperature, top_k=self.top_k,
                top_p=self.top_p, seed=seed, stop_token_ids=self.stop_token_ids,
                ignore_eos=self.ignore_eos,
            )
        except UsageError as error:
            raise bad(str(error)) from None


def parse_call(raw: Mapping[str, Any], chat: bool, vocab_size: int, num_stop_ids: int) -> Call:
    """Check a request body. num_stop_ids: stop tokens that the model has of its own.

    Raises ApiError (400) naming the field.
    """
    fields = Fields(raw)
    _refuse_unsupported(fields)
    n = fields.integer("n", 1, 1, MAX_SEQUENCES) or 1
    if fields.has("best_of") and fields.get("best_of") != n:
        raise wrong("best_of", fields.get("best_of"), f"the same as n ({n})")
    prompts: tuple[str | tuple[int, ...], ...] = ()
    messages: tuple[dict[str, str], ...] = ()
    if chat:
        messages = _messages(fields.get("messages"))
    else:
        prompts = _prompts(fields.get("prompt"), vocab_size)
        if len(prompts) * n > MAX_SEQUENCES:
            raise bad(f"{len(prompts)} prompts times n = {n} is more than {MAX_SEQUENCES}", "n")
    max_tokens = fields.integer("max_tokens", None, 1, 1 << 31)
    if chat:
        max_tokens = fields.integer("max_completion_tokens", max_tokens, 1, 1 << 31)
    elif max_tokens is None:
        max_tokens = 16
    ignore_eos = fields.boolean("ignore_eos")
    min_tokens = fields.integer("min_tokens", 0, 0, 1 << 31) or 0
    if min_tokens and (not ignore_eos or (max_tokens is not None and min_tokens > max_tokens)):
        raise bad(
            f"min_tokens {min_tokens} needs ignore_eos and max_tokens of at least as many",
            "min_tokens",
        )
    top_k = fields.integer("top_k", 0, -1, 1 << 31) or 0
    options = fields.inner("stream_options")
    stream = fields.boolean("stream")
    if fields.has("stream_options") and not stream:
        raise bad("stream_options needs stream: true", "stream_options")
    stops = _stop_ids(fields.get("stop_token_ids"), vocab_size)
    if len(stops) + (0 if ignore_eos else num_stop_ids) > MAX_STOP_IDS:
        raise bad(
            f"{len(stops)} stop_token_ids and the model's own {num_stop_ids} are more than "
            f"{MAX_STOP_IDS}", "stop_token_ids",
        )
    return Call(
        chat=chat, prompts=prompts, messages=messages, n=n, max_tokens=max_tokens,
        temperature=fields.number("temperature", 1.0, 0.0, 100.0),
        # A filter wider than the vocabulary is no filter.
        top_k=top_k if 0 < top_k < vocab_size else 0,
        top_p=fields.number("top_p", 1.0, 0.0, 1.0),
        seed=fields.integer("seed", None, -_INT64, _INT64 - 1),
        stop=_stop_strings(fields.get("stop")), stop_token_ids=stops, ignore_eos=ignore_eos,
        stream=stream, include_usage=options.boolean("include_usage"),
        continuous_usage=options.boolean("continuous_usage_stats"),
    )


def check_model(fields: Mapping[str, Any], served: str) -> None:
    """The `model` of a request, which may be left out: 404 unless it is the one served."""
    name = Fields(fields).text("model")
    if name is not None and name != served:
        raise ApiError(
            404, f"model {shown(name)} does not exist; this server has {shown(served)}",
            "model", "model_not_found",
        )


def _refuse_unsupported(fields: Fields) -> None:
    for name, off in _OFF.items():
        value = fields.get(name)
        if value is None or (name == "best_of" and fields.has("n")):
            continue
        same_kind = [v for v in off if isinstance(v, bool) == isinstance(value, bool)]
        if value not in same_kind:
            raise bad(f"{name} is {shown(value)}, which is not supported; leave it out", name)


def _prompts(value: object, vocab_size: int) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str):
        return (clean_text("prompt", value),)
    if not isinstance(value, list) or not value:
        raise wrong("prompt", value, "a string, a list of token ids, or a list of these")
    if isinstance(value[0], int) and not isinstance(value[0], bool):
        return (tuple(token_ids("prompt", value, vocab_size)),)
    if len(value) > MAX_SEQUENCES:
        raise bad(f"prompt holds {len(value)} prompts; at most {MAX_SEQUENCES}", "prompt")
    return tuple(
        tuple(token_ids("prompt", item, vocab_size)) if isinstance(item, list)
        else clean_text("prompt", item)
        for item in value
    )


def _messages(value: object) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise wrong("messages", value, "a list of at least one message")
    out = []
    for i, message in enumerate(value):
        path = f"messages[{i}]"
        if not isinstance(message, dict):
            raise wrong(path, message, "an object with role and content")
        role = clean_text(f"{path}.role", message.get("role"))
        out.append({"role": role, "content": _content(f"{path}.content", message.get("content"))})
    return tuple(out)


def _content(path: str, value: object) -> str:
    """A string, or OpenAI's list of parts, of which only text can be read."""
    if not isinstance(value, list):
        return clean_text(path, value)
    texts = []
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise wrong(path, part, "a string or a list of parts of type text")
        texts.append(clean_text(f"{path}.text", part.get("text")))
    return "\n".join(texts)


def _stop_strings(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_STOPS:
        raise bad(f"stop has {len(items)} strings; at most {MAX_STOPS}", "stop")
    stops = tuple(clean_text("stop", item) for item in items)
    if any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
        raise bad(f"each stop string must have 1 to {MAX_STOP_CHARS} characters", "stop")
    return stops


def _stop_ids(value: object, vocab_size: int) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong("stop_token_ids", value, "a list of token ids")
    return tuple(dict.fromkeys(token_ids("stop_token_ids", value, vocab_size)))
