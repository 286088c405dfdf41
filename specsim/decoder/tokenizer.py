"""Text to token ids and back, chat templates, and streaming text out of tokens.

Reads tokenizer.json and tokenizer_config.json of a Hugging Face folder. Chat templates are Jinja
programs from the checkpoint: they run in Jinja's sandbox, without access to anything but the
messages (jinja2 comes with torch).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specsim.decoder.config import read_object
from specsim.errors import FormatError, UsageError, shown
from specsim.files import file_text

_REPLACEMENT = "\ufffd"


class Tokenizer:
    """Byte-level BPE with special tokens. `vocab_size` counts added tokens too.
    longest_token_bytes: no token stands for more bytes of text."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Backend

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FormatError(f"{folder} has no tokenizer.json; text needs one, token ids do not")
        try:
            self._backend = Backend.from_file(str(path))
        except Exception as error:
            raise FormatError(f"{path} is not a readable tokenizer: {error}") from None
        config_path = folder / "tokenizer_config.json"
        config = read_object(config_path) if config_path.is_file() else {}
        self.vocab_size: int = self._backend.get_vocab_size(with_added_tokens=True)
        # Of its name in the file, where a byte beyond ASCII may take two: never too small.
        self.longest_token_bytes = max(
            (len(token.encode()) for token in self._backend.get_vocab(True)), default=1
        )
        self._template = _chat_template(folder, config)
        self._specials = {
            key: _token_text(config.get(key)) for key in ("bos_token", "eos_token")
        }
        self._add_bos = bool(config.get("add_bos_token", False))

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids; a begin token is added where the tokenizer's config asks for it."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=special).ids
        bos = self.token_id(self._specials["bos_token"]) if special and self._add_bos else None
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def token_id(self, token: str | None) -> int | None:
        found: int | None = None if token is None else self._backend.token_to_id(token)
        return found

    def chat_text(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text of a conversation: messages of {'role', 'content'}."""
        for message in messages:
            if not isinstance(message.get("role"), str) or "content" not in message:
                raise UsageError("each chat message needs a 'role' and a 'content'")
        if self._template is None:
            raise UsageError(
                "this model's tokenizer has no chat template; send a plain prompt instead"
            )
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise_in_template
        try:
            return environment.from_string(self._template).render(
                messages=list(messages), add_generation_prompt=True, **self._specials
            )
        except Exception as error:  # the checkpoint's own program may fail in any way
            raise UsageError(
                f"the chat template refused these messages: {shown(str(error), 200)}"
            ) from None

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode(self.chat_text(messages), special=False)


class TextStream:
    """Text of a growing token list, piece by piece.

    A token may end inside a character, and byte-level decoders may join a token with the next, so
    a piece is given out only when the text up to it no longer ends in a replacement character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = 0  # tokens whose text has been given out
        self._base = 0  # earlier tokens decoded along, so that joins come out right

    def push(self, ids: Iterable[int]) -> str:
        """Add tokens; the text that is now certain."""
        self._ids.extend(ids)
        old, new = self._texts()
        if new.endswith(_REPLACEMENT) or len(new) <= len(old):
            return ""
        self._base, self._sent = self._sent, len(self._ids)
        return new[len(old) :]

    def _texts(self) -> tuple[str, str]:
        """What was given out of the tokens decoded along, and all of them as text."""
        old = self._tokenizer.decode(self._ids[self._base : self._sent])
        return old, self._tokenizer.decode(self._ids[self._base :])

    def finish(self) -> str:
        """What was held back at the end of the stream."""
        old, new = self._texts()
        self._base = self._sent = len(self._ids)
        return new[len(old) :]


def _token_text(value: object) -> str | None:
    """A special token, written as a text or as a table with its content."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _chat_template(folder: Path, config: Mapping[str, object]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file_text(file)
    template = config.get("chat_template")
    if isinstance(template, list):  # named templates
        template = next((t.get("template") for t in template
                         if isinstance(t, dict) and t.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _raise_in_template(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)
