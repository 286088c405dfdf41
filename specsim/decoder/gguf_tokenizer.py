"""The byte-level BPE tokenizer inside a GGUF file, as a Hugging Face tokenizer.json.

Only `gpt2`-model tokenizers (byte-level BPE with merges), whose pre-tokeniser is one this module
knows: the split pattern decides token boundaries, so an unknown one is refused.
"""

from typing import Any

from specsim.errors import FormatError

# Split patterns by GGUF pre-tokeniser name. They are part of each model's published tokenizer
# (SmolLM2 and Qwen2: Apache-2.0; Llama 3: the pattern also used by tiktoken's cl100k, MIT).
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

_CONTROL_TYPES = (3, 4)  # GGUF token types: control, user defined


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": False}


_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _byte_level(True)],
    "qwen2": [_split(_QWEN2), _byte_level(False)],
    "llama-bpe": [_split(_LLAMA3), _byte_level(False)],
    "gpt-2": [_byte_level(True)],
}


def tokenizer_files(meta: dict[str, Any]) -> dict[str, Any]:
    """tokenizer.json and tokenizer_config.json contents from GGUF metadata."""
    model = meta.get("tokenizer.ggml.model")
    pre = str(meta.get("tokenizer.ggml.pre", "gpt-2"))
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise FormatError(
            f"the GGUF file's tokenizer (model {model!r}, pre {pre!r}) is not supported; supported "
            f"are byte-level BPE with pre of {', '.join(_PRE_TOKENIZERS)}: use the Hugging Face "
            "folder of this model"
        )
    tokens: list[str] = list(meta["tokenizer.ggml.tokens"])
    types: list[int] = list(meta.get("tokenizer.ggml.token_type") or [1] * len(tokens))
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": types[i] == 3}
        for i, token in enumerate(tokens) if types[i] in _CONTROL_TYPES
    ]
    normalizer = {"type": "NFC"} if pre == "qwen2" else None
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[pre]},
        "post_processor": None,
        "decoder": _byte_level(True),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in meta["tokenizer.ggml.merges"]],
        },
    }

    def name_of(key: str) -> str | None:
        index = meta.get(f"tokenizer.ggml.{key}_token_id")
        return None if index is None else tokens[int(index)]

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": name_of("bos"),
        "eos_token": name_of("eos"),
        "chat_template": meta.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(meta.get("tokenizer.ggml.add_bos_token", False)),
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
