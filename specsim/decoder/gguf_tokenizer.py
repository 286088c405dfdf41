"""The byte-level BPE tokenizer inside a GGUF file, as a Hugging Face tokenizer.json.

Only `gpt2`-model tokenizers (byte-level BPE with merges), whose pre-tokeniser is one this module
knows: the split pattern decides token boundaries, so an unknown one is refused.
"""

from collections.abc import Mapping

from pydantic import ConfigDict, Field

from specsim.checked import LooseShape, check
from specsim.errors import FormatError

# Split patterns by GGUF pre-tokeniser name. They are part of each model's published tokenizer
# (SmolLM2 and Qwen2: Apache-2.0; Llama 3: the pattern also used by tiktoken's cl100k, MIT).
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

_CONTROL_TYPES = (3, 4)  # GGUF token types: control, user defined


def _byte_level(use_regex: bool) -> dict[str, object]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": use_regex}


def _split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": False}


_PRE_TOKENIZERS: dict[str, list[dict[str, object]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _byte_level(True)],
    "qwen2": [_split(_QWEN2), _byte_level(False)],
    "llama-bpe": [_split(_LLAMA3), _byte_level(False)],
    "gpt-2": [_byte_level(True)],
}


class TokenizerMetadata(LooseShape):
    """What a GGUF file says of its tokenizer."""

    model_config = ConfigDict(alias_generator=lambda name: f"tokenizer.ggml.{name}")

    model: str | None = None
    pre: str = "gpt-2"
    tokens: tuple[str, ...] = ()
    token_type: tuple[int, ...] | None = None
    merges: tuple[str, ...] = ()
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    add_bos_token: bool = False
    chat_template: str | None = Field(default=None, alias="tokenizer.chat_template")

    def token(self, index: int | None) -> str | None:
        """A token's text; FormatError for one that is none of them."""
        if index is None:
            return None
        if not 0 <= index < len(self.tokens):
            raise FormatError(f"the GGUF file's tokenizer names token {index} and has "
                              f"{len(self.tokens)}; the file is damaged")
        return self.tokens[index]


def tokenizer_files(metadata: Mapping[str, object]) -> dict[str, object]:
    """tokenizer.json and tokenizer_config.json contents from GGUF metadata."""
    meta = check(TokenizerMetadata, metadata, "the GGUF file's metadata")
    if meta.model != "gpt2" or meta.pre not in _PRE_TOKENIZERS:
        raise FormatError(
            f"the GGUF file's tokenizer (model {meta.model!r}, pre {meta.pre!r}) is not supported; "
            f"supported are byte-level BPE with pre of {', '.join(_PRE_TOKENIZERS)}: use the "
            "Hugging Face folder of this model"
        )
    types = meta.token_type or (1,) * len(meta.tokens)
    if len(types) != len(meta.tokens):
        raise FormatError(f"the GGUF file has {len(meta.tokens)} tokens and {len(types)} types of "
                          "tokens; the file is damaged")
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": types[i] == 3}
        for i, token in enumerate(meta.tokens) if types[i] in _CONTROL_TYPES
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if meta.pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[meta.pre]},
        "post_processor": None,
        "decoder": _byte_level(True),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": meta.pre == "llama-bpe",
            "vocab": {token: i for i, token in enumerate(meta.tokens)},
            "merges": [merge.split(" ", 1) for merge in meta.merges],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": meta.token(meta.bos_token_id),
        "eos_token": meta.token(meta.eos_token_id),
        "chat_template": meta.chat_template,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": meta.add_bos_token,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
