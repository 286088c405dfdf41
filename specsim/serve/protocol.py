"""What a request body asks for: OpenAI's completions and chat, with vLLM's additions.

Beyond OpenAI's fields: top_k (0 or -1 is off), ignore_eos, stop_token_ids, min_tokens (with
ignore_eos), stream_options.continuous_usage_stats. As in vLLM, temperature and top_p default to 1,
max_tokens to 16 for completions and to the rest of the context for chat, and unknown fields are
ignored. A known field that would change the answer and is not supported (logprobs, penalties,
tools, ...) is refused unless it has the value that means "off": silence would be a wrong answer.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from specsim.checked import Broken, Rule
from specsim.decoder.options import MAX_STOP_IDS, SamplingParams
from specsim.decoder.tokenizer import Tokenizer
from specsim.errors import UsageError
from specsim.serve.bodies import A_STRING, Body, Text, Whole, read, shown, valid_unicode, wrong
from specsim.serve.errors import ApiError, bad
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

_PROMPT = "a string, a list of token ids, or a list of these"


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not valid_unicode(value):
        raise wrong(name, value, A_STRING)
    return value


def _token_ids(name: str, value: list[object], vocab_size: int) -> tuple[int, ...]:
    """Token ids of the model's vocabulary."""
    ids = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < vocab_size:
            raise bad(
                f"{name} holds {shown(item)}; token ids are whole numbers from 0 to "
                f"{vocab_size - 1}", name,
            )
        ids.append(item)
    return tuple(ids)


def _prompts(value: object, info: ValidationInfo[int]) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str):
        return (_text("prompt", value),)
    if not isinstance(value, list) or not value:
        raise Broken(_PROMPT)
    if isinstance(value[0], int) and not isinstance(value[0], bool):
        return (_token_ids("prompt", value, info.context),)
    if len(value) > MAX_SEQUENCES:
        raise bad(f"prompt holds {len(value)} prompts; at most {MAX_SEQUENCES}", "prompt")
    return tuple(
        _token_ids("prompt", item, info.context) if isinstance(item, list)
        else _text("prompt", item)
        for item in value
    )


def _stop_strings(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_STOPS:
        raise bad(f"stop has {len(items)} strings; at most {MAX_STOPS}", "stop")
    stops = tuple(_text("stop", item) for item in items)
    if any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
        raise bad(f"each stop string must have 1 to {MAX_STOP_CHARS} characters", "stop")
    return stops


def _stop_ids(value: object, info: ValidationInfo[int]) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise wrong("stop_token_ids", value, "a list of token ids")
    return tuple(dict.fromkeys(_token_ids("stop_token_ids", value, info.context)))


def _top_k(value: int, info: ValidationInfo[int]) -> int:
    """A filter wider than the vocabulary is no filter."""
    return value if 0 < value < info.context else 0


def _content(value: object) -> object:
    """OpenAI's list of parts, of which only text can be read, as one text."""
    if not isinstance(value, list):
        return value
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise Broken("a string or a list of parts of type text", value=part)
        if not isinstance(part.get("text"), str):
            raise Broken(A_STRING, "text", part.get("text"))
    return "\n".join(part["text"] for part in value)


Tokens = Annotated[Whole | None, Field(ge=1, le=1 << 31)]


class StreamOptions(Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Message(Body):
    role: Text
    content: Annotated[Text, BeforeValidator(_content)]


class Call(Body):
    """One HTTP request. n: answers per prompt. max_tokens None: the rest of the context."""

    chat: ClassVar[bool]
    source: ClassVar[str]  # the field that holds what is to be continued

    n: Annotated[Whole, Field(ge=1, le=MAX_SEQUENCES)] = 1
    max_tokens: Tokens = None
    min_tokens: Annotated[Whole, Field(ge=0, le=1 << 31)] = 0
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[Whole, Field(ge=-1, le=1 << 31), AfterValidator(_top_k)] = 0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    seed: Annotated[Whole | None, Field(ge=-_INT64, le=_INT64 - 1)] = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings)] = ()
    stop_token_ids: Annotated[tuple[int, ...], BeforeValidator(_stop_ids)] = ()
    ignore_eos: bool = False
    stream: bool = False
    stream_options: Annotated[StreamOptions, Rule("an object")] = StreamOptions()

    @property
    def answer_limit(self) -> int | None:
        """The most tokens of an answer, None for the rest of the context."""
        return self.max_tokens

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, raw: Mapping[str, object]) -> object:
        n = raw.get("n")
        for name, off in _OFF.items():
            value = raw.get(name)
            if value is None or (name == "best_of" and n is not None and value == n):
                continue
            if name == "best_of" and n is not None:
                raise wrong(name, value, f"the same as n ({n})")
            same_kind = [v for v in off if isinstance(v, bool) == isinstance(value, bool)]
            if value not in same_kind:
                raise bad(f"{name} is {shown(value)}, which is not supported; leave it out", name)
        return raw

    @model_validator(mode="after")
    def _fields_together(self) -> "Call":
        most = self.answer_limit
        if self.min_tokens and (
            not self.ignore_eos or (most is not None and self.min_tokens > most)
        ):
            raise bad(
                f"min_tokens {self.min_tokens} needs ignore_eos and max_tokens of at least as "
                "many", "min_tokens",
            )
        if "stream_options" in self.model_fields_set and not self.stream:
            raise bad("stream_options needs stream: true", "stream_options")
        return self

    @property
    def sequences(self) -> int:
        """Answers that this request starts."""
        return self.n

    def text_bytes(self) -> int:
        """Size of all text that is to be tokenised."""
        raise NotImplementedError

    def encode(self, tokenizer: Tokenizer, most_bytes: int) -> list[tuple[int, ...]]:
        """Token ids of each prompt. ApiError (400) for a text of more than most_bytes."""
        raise NotImplementedError

    def _sized(self, text: str, most_bytes: int) -> str:
        size = len(text.encode())
        if size > most_bytes:
            raise bad(
                f"a text of {size} bytes is more than this model's context can hold (at most "
                f"{most_bytes} bytes are tokenised); shorten it", self.source,
                "context_length_exceeded",
            )
        return text

    def params(self, prompt_len: int, max_model_len: int, answer: int) -> SamplingParams:
        """Sampling parameters for a prompt of that many tokens; answer: 0 .. n-1.

        With a seed, each answer has a seed of its own, as in vLLM. Raises ApiError when prompt and
        answer cannot fit, or a value is outside the engine's range.
        """
        room = max_model_len - prompt_len
        wanted = self.answer_limit if self.answer_limit is not None else max(room, 1)
        if wanted > room:
            raise bad(
                f"this model's maximum context length is {max_model_len} tokens; the prompt has "
                f"{prompt_len} and the answer may have {wanted}; shorten the prompt or max_tokens",
                self.source, "context_length_exceeded",
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


class CompletionCall(Call):
    """prompt: texts or token ids."""

    chat, source = False, "prompt"

    prompt: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_prompts),
                      Rule(_PROMPT)]
    max_tokens: Tokens = 16

    @model_validator(mode="after")
    def _bounded(self) -> "CompletionCall":
        if len(self.prompt) * self.n > MAX_SEQUENCES:
            raise bad(f"{len(self.prompt)} prompts times n = {self.n} is more than "
                      f"{MAX_SEQUENCES}", "n")
        return self

    @property
    def sequences(self) -> int:
        return len(self.prompt) * self.n

    def text_bytes(self) -> int:
        return sum(len(p.encode()) for p in self.prompt if isinstance(p, str))

    def encode(self, tokenizer: Tokenizer, most_bytes: int) -> list[tuple[int, ...]]:
        return [p if isinstance(p, tuple) else tuple(tokenizer.encode(self._sized(p, most_bytes)))
                for p in self.prompt]


class ChatCall(Call):
    """max_completion_tokens goes before max_tokens."""

    chat, source = True, "messages"

    messages: Annotated[
        tuple[Annotated[Message, Rule("an object with role and content")], ...],
        Field(strict=False, min_length=1), Rule("a list of at least one message"),
    ]
    max_completion_tokens: Tokens = None

    @property
    def answer_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def text_bytes(self) -> int:
        return sum(len(m.content.encode()) + len(m.role.encode()) for m in self.messages)

    def encode(self, tokenizer: Tokenizer, most_bytes: int) -> list[tuple[int, ...]]:
        text = tokenizer.chat_text([m.model_dump() for m in self.messages])
        return [tuple(tokenizer.encode(self._sized(text, most_bytes), special=False))]


def parse_call(
    raw: Mapping[str, object], chat: bool, vocab_size: int, num_stop_ids: int
) -> Call:
    """Check a request body. num_stop_ids: stop tokens that the model has of its own.

    Raises ApiError (400) naming the field.
    """
    shape: type[Call] = ChatCall if chat else CompletionCall
    call = read(shape, raw, vocab_size)
    stops = len(call.stop_token_ids)
    if stops + (0 if call.ignore_eos else num_stop_ids) > MAX_STOP_IDS:
        raise bad(
            f"{stops} stop_token_ids and the model's own {num_stop_ids} are more than "
            f"{MAX_STOP_IDS}", "stop_token_ids",
        )
    return call


class _Named(Body):
    model: Text | None = None


def check_model(raw: Mapping[str, object], served: str) -> None:
    """The `model` of a request, which may be left out: 404 unless it is the one served."""
    name = read(_Named, raw).model
    if name is not None and name != served:
        raise ApiError(
            404, f"model {shown(name)} does not exist; this server has {shown(served)}",
            "model", "model_not_found",
        )
