"""GGUF files as Hugging Face folders: read metadata, dequantise, write safetensors once.

Dequantising SmolLM2 takes seconds and a 1.5B model a minute, so the result is cached: a folder
with config.json, tokenizer.json, tokenizer_config.json and one bf16 model.safetensors that this
decoder and transformers both load. The folder's name holds a digest of the file, and it appears
under its final name only when complete.

Conversions (GGUF's llama architecture stores q and k rows in adjacent rotary pairs, Hugging Face
in half-split order; qwen2 and qwen3 are stored as they are): `unpair_rows`.

The tokenizer in the file becomes a Hugging Face tokenizer.json: only `gpt2`-model ones (byte-level
BPE with merges) whose pre-tokeniser is known here; the split pattern decides token boundaries, so
an unknown one is refused.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from specsim.checked import LooseShape, check
from specsim.decoder.config import ModelConfig
from specsim.errors import FormatError, ModelConfigError
from specsim.files import replacing, write_whole
from specsim.formats.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from specsim.jsonable import json_text

MAX_TOKENIZER = 4_000_000  # tokens or merges; no tokenizer has more
# GGUF architecture -> (family, q/k rows are in adjacent pairs)
ARCHITECTURES = {
    "llama": ("llama", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
    "qwen3moe": ("qwen3_moe", False),
}

_LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
}
_EXPERT_NAMES = {"ffn_gate_exps.weight": "gate", "ffn_up_exps.weight": "up",
                 "ffn_down_exps.weight": "down"}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

# Metadata of an architecture -> its name in config.json.
_CONFIG_KEYS = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "feed_forward_length": "intermediate_size", "vocab_size": "vocab_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings", "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_NEEDED = ("embedding_length", "block_count", "attention.head_count", "feed_forward_length",
           "attention.layer_norm_rms_epsilon")


def unpair_rows(rows: Tensor, head_dim: int) -> Tensor:
    """Adjacent rotary pairs to half-split order over the first axis [heads * D, ...]."""
    split = rows.view(-1, head_dim // 2, 2, *rows.shape[1:])
    return split.transpose(1, 2).reshape(rows.shape)


def cache_root() -> Path:
    """Where converted models are kept: $SPECSIM_CACHE, else $XDG_CACHE_HOME, else ~/.cache."""
    explicit = os.environ.get("SPECSIM_CACHE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specsim"


def convert(path: Path, root: Path | None = None) -> Path:
    """The Hugging Face folder of a GGUF file, converted now or on an earlier run.

    Raises FormatError when the file is not a readable GGUF or holds an architecture this decoder
    does not run.
    """
    if not path.is_file():
        raise FormatError(f"{path} is not a file; give a .gguf file or a Hugging Face folder")
    folder = (root or cache_root()) / "models" / f"{path.stem}-{_digest(path)}"
    if (folder / "model.safetensors").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".converting-", dir=folder.parent))
    try:
        _write(path, staging)
        try:
            staging.rename(folder)
        except OSError:  # another process finished first
            if not (folder / "model.safetensors").is_file():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def _digest(path: Path) -> str:
    """16 hex digits of size, first and last MiB: enough to tell files apart, quick to compute."""
    digest = hashlib.sha256(str(path.stat().st_size).encode())
    with path.open("rb") as file:
        digest.update(file.read(1 << 20))
        file.seek(max(0, path.stat().st_size - (1 << 20)))
        digest.update(file.read(1 << 20))
    return digest.hexdigest()[:16]


def _write(path: Path, folder: Path) -> None:
    if find_spec("gguf") is None:
        raise FormatError(
            "reading a .gguf file needs the package gguf: pip install 'specsim-llm[decoder]'"
        )
    from safetensors.torch import save_file

    header = read_gguf_header(path, MAX_TOKENIZER)
    meta, names = header.metadata, [tensor.name for tensor in header.tensors]
    if len(set(names)) < len(names):
        raise FormatError(f"{path.name}: two of its tensors have one name; the file is damaged")
    config = config_from_gguf(meta, tied="output.weight" not in names)
    files = tokenizer_files(meta)
    paired = ARCHITECTURES[str(meta["general.architecture"])][1]
    tensors: dict[str, Tensor] = {}
    for item in header.tensors:
        if item.name == "rope_freqs.weight":
            continue  # Llama 3.1's factors, recomputed from the config
        tensors |= _to_hf(item.name, _tensor(path, header, item), config, paired)
    saved = {name: t.to(torch.bfloat16).contiguous() for name, t in tensors.items()}
    for name, content in files.items():
        write_whole(folder / name, json_text(content, ensure_ascii=False))
    write_whole(folder / "config.json", json_text(config.to_hf(), indent=1))
    with replacing(folder / "model.safetensors") as part:
        save_file(saved, part, metadata={"format": "pt"})


def _tensor(path: Path, header: GgufHeader, item: GgufTensor) -> Tensor:
    """One tensor's weights, fp32 [rows, ..., columns], from the file's data."""
    from gguf import GGMLQuantizationType, quants

    columns, size = item.shape[0], int(item.bytes)
    what = f"{path.name}: tensor {item.name[:60]!a}"
    if not size or columns % item.block:
        raise FormatError(f"{what} cannot have {list(item.shape)} weights; the file is damaged")
    start = header.data_start + item.offset
    if start + size > path.stat().st_size:
        raise FormatError(f"{what} goes beyond the end of the file; it is cut off or damaged")
    raw = np.fromfile(path, np.uint8, size, offset=start)
    row_bytes = columns * size // item.weights
    try:
        kind = GGMLQuantizationType[item.type_name]
        found = quants.dequantize(raw.reshape(*reversed(item.shape[1:]), row_bytes), kind)
    except (KeyError, NotImplementedError):
        raise FormatError(f"{what} is stored as {item.type_name}, which is not read; convert the "
                          "model to another type") from None
    return torch.from_numpy(found)


def _to_hf(name: str, tensor: Tensor, config: ModelConfig, paired: bool) -> dict[str, Tensor]:
    if name in _TOP_NAMES:
        return {_TOP_NAMES[name]: tensor}
    parts = name.split(".", 2)
    if len(parts) == 3 and parts[0] == "blk":
        prefix, rest = f"model.layers.{parts[1]}.", parts[2]
        if rest in _LAYER_NAMES:
            if paired and rest.split(".")[0] in ("attn_q", "attn_k"):
                if tensor.shape[0] % config.head_dim:
                    raise ModelConfigError(
                        f"{name} of the GGUF file has {tensor.shape[0]} rows, which are no heads "
                        f"of {config.head_dim}; the file is damaged"
                    )
                tensor = unpair_rows(tensor, config.head_dim)
            return {prefix + _LAYER_NAMES[rest]: tensor}
        if rest in _EXPERT_NAMES:
            part = _EXPERT_NAMES[rest]
            return {f"{prefix}mlp.experts.{e}.{part}_proj.weight": tensor[e]
                    for e in range(tensor.shape[0])}
    raise FormatError(
        f"the GGUF file holds a tensor {name!r} this decoder has no use for; its architecture is "
        "not the plain one"
    )


def config_from_gguf(meta: Mapping[str, object], tied: bool) -> ModelConfig:
    """ModelConfig from GGUF metadata (key -> value)."""
    arch = str(meta.get("general.architecture", ""))
    if arch not in ARCHITECTURES:
        raise ModelConfigError(
            f"GGUF architecture {arch!r} is not one the bundled decoder runs "
            f"({', '.join(ARCHITECTURES)})"
        )
    family = ARCHITECTURES[arch][0]
    stops = [meta.get("tokenizer.ggml.eos_token_id"), meta.get("tokenizer.ggml.eot_token_id")]
    raw: dict[str, object] = {
        "model_type": family, "tie_word_embeddings": tied, "norm_topk_prob": True,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(dict.fromkeys(s for s in stops if s is not None)),
    }
    for key, name in _CONFIG_KEYS.items():
        value = meta.get(f"{arch}.{key}")
        if value is None and key in _NEEDED:
            raise ModelConfigError(f"the GGUF file has no {arch}.{key}; it is not complete")
        raw[name] = round(value, 12) if isinstance(value, float) else value
    if raw["vocab_size"] is None:
        tokens = meta.get("tokenizer.ggml.tokens")
        raw["vocab_size"] = len(tokens) if isinstance(tokens, tuple) else 0
    scaling = meta.get(f"{arch}.rope.scaling.type")
    if scaling == "linear":
        factor = meta.get(f"{arch}.rope.scaling.factor")
        raw["rope_scaling"] = {"rope_type": scaling, "factor": factor}
    elif scaling not in (None, "none"):
        raise ModelConfigError(
            f"rope scaling {scaling!r} of a GGUF file is not supported; use the safetensors "
            "checkpoint"
        )
    return ModelConfig.from_hf(raw)


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
