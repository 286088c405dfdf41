"""What a decoder checkpoint is: one frozen record for Llama, Qwen2/2.5, Qwen3 and Qwen3-MoE.

`ModelConfig.from_hf` reads a Hugging Face config.json in the spellings of transformers 4 and 5
(`rope_theta` on top or inside `rope_parameters`, `head_dim` missing, `num_experts` or
`num_local_experts`). What this decoder cannot run exactly is refused, never approximated.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from specsim.checked import json_value
from specsim.errors import FormatError, ModelConfigError, closest, require, shown
from specsim.files import file_text


class FamilyTraits(NamedTuple):
    """What sets the families apart. arch: the class of transformers, without 'ForCausalLM'."""

    arch: str
    qkv_bias: bool = False
    qk_norm: bool = False  # per head
    experts: bool = False


# By Hugging Face's model_type.
FAMILIES = {
    "llama": FamilyTraits("Llama"),
    "mistral": FamilyTraits("Llama"),
    "qwen2": FamilyTraits("Qwen2", qkv_bias=True),
    "qwen3": FamilyTraits("Qwen3", qk_norm=True),
    "qwen3_moe": FamilyTraits("Qwen3Moe", qk_norm=True, experts=True),
}
# Name in config.json -> field.
_FIELDS = {
    "hidden_size": "hidden_size", "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads", "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim", "intermediate_size": "intermediate_size", "vocab_size": "vocab_size",
    "rms_norm_eps": "rms_norm_eps", "rope_theta": "rope_theta", "rope_scaling": "rope_scaling",
    "tie_word_embeddings": "tie_word_embeddings", "max_position_embeddings": "max_position",
}
_EXPERT_FIELDS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_SIZES = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "vocab_size",
          "max_position")
_SIZES_OR_NONE = ("intermediate_size", "num_experts", "num_experts_per_tok",
                  "moe_intermediate_size")
_SCALES = ("rms_norm_eps", "rope_theta")
MAX_SIZE = (1 << 31) - 1
MAX_JSON_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rescaled rotary frequencies: 'llama3' (piecewise by wavelength) or 'linear'."""

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192

    def __post_init__(self) -> None:
        require(
            *((0 < value < math.inf,
               f"{name} {value} of the rope scaling must be a number above 0")
              for name, value in (("factor", self.factor),
                                  ("low_freq_factor", self.low_freq_factor),
                                  ("high_freq_factor", self.high_freq_factor),
                                  ("original_max_position", self.original_max_position))),
            error=ModelConfigError,
        )

    def to_hf(self) -> dict[str, object]:
        out: dict[str, object] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind == "llama3":
            out |= {
                "low_freq_factor": self.low_freq_factor,
                "high_freq_factor": self.high_freq_factor,
                "original_max_position_embeddings": self.original_max_position,
            }
        return out


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes and constants of one decoder-only transformer. Widths are in elements."""

    family: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    num_experts: int = 0  # 0: dense
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = True
    max_position: int = 8192
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require(
            *((least <= getattr(self, name) <= MAX_SIZE,
               f"{name} is {shown(getattr(self, name))}; it must be {least} or more, at most "
               f"{MAX_SIZE}")
              for least, names in ((1, _SIZES), (0, _SIZES_OR_NONE)) for name in names),
            *((0 < getattr(self, name) < math.inf,
               f"{name} is {getattr(self, name)}; it must be a number above 0")
              for name in _SCALES),
            *((0 <= token <= MAX_SIZE,
               f"the end token {shown(token)} is none; it must be 0 or more, at most {MAX_SIZE}")
              for token in self.eos_token_ids),
            (self.num_heads % (self.num_kv_heads or 1) == 0,
             f"num_attention_heads {self.num_heads} is not a multiple of num_key_value_heads "
             f"{self.num_kv_heads}; fix the model's config"),
            (self.head_dim % 2 == 0,
             f"head_dim {self.head_dim} is odd; rotary embeddings need pairs"),
            (not self.num_experts or 1 <= self.num_experts_per_tok <= self.num_experts,
             f"num_experts_per_tok {self.num_experts_per_tok} must lie in 1..{self.num_experts}"),
            error=ModelConfigError,
        )

    @property
    def qkv_bias(self) -> bool:
        return FAMILIES[self.family].qkv_bias

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normalised per head."""
        return FAMILIES[self.family].qk_norm

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def qkv_width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    def num_parameters(self) -> int:
        """Weights of the whole model, a tied head counted once."""
        h, d = self.hidden_size, self.head_dim
        attention = h * self.qkv_width + self.num_heads * d * h
        attention += self.qkv_width if self.qkv_bias else 0
        attention += 2 * d if self.qk_norm else 0
        if self.num_experts:
            ffn = self.num_experts * (h + 3 * h * self.moe_intermediate_size)
        else:
            ffn = 3 * h * self.intermediate_size
        layers = self.num_layers * (attention + ffn + 2 * h)
        return layers + h + self.vocab_size * h * (1 if self.tie_word_embeddings else 2)

    @classmethod
    def from_hf(cls, raw: Mapping[str, object]) -> "ModelConfig":
        """Translate a Hugging Face config.json. Raises ModelConfigError naming what is refused."""
        family = str(raw.get("model_type", ""))
        if family not in FAMILIES:
            raise ModelConfigError(
                f"model_type {family!r} is not one the bundled decoder runs; "
                f"{closest(family, FAMILIES)}it runs {', '.join(FAMILIES)}"
            )
        _refuse_unsupported(raw, family)
        for name in _NEEDED:
            if raw.get(name) is None:
                raise ModelConfigError(
                    f"the model config has no {name!r}; it is not a complete config.json"
                )
        given = {field: raw[name] for name, field in _FIELDS.items() if raw.get(name) is not None}
        found: dict[str, object] = {
            "num_kv_heads": given["num_heads"], "intermediate_size": 0, "rms_norm_eps": 1e-6,
            **given, "family": "llama" if family == "mistral" else family,
            "rope_theta": _rope_theta(raw), "rope_scaling": _rope_scaling(raw),
            "bos_token_id": raw.get("bos_token_id"),
            "eos_token_ids": _token_ids(raw.get("eos_token_id")),
        }
        hidden, heads = given["hidden_size"], given["num_heads"]
        if isinstance(hidden, int) and isinstance(heads, int):
            found.setdefault("head_dim", hidden // heads if heads > 0 else 0)
        if FAMILIES[family].experts:
            found |= {"num_experts_per_tok": 8, "norm_topk_prob": False}
            found |= {name: raw[name] for name in _EXPERT_FIELDS if raw.get(name) is not None}
            found.setdefault("num_experts", raw.get("num_local_experts") or 0)
        try:
            return TypeAdapter(cls).validate_python(found)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            name = ".".join(map(str, first["loc"]))
            raise ModelConfigError(
                f"a field of the model config is not a number: {name} is {shown(first['input'])}"
            ) from None

    def to_hf(self, dtype: str = "bfloat16") -> dict[str, object]:
        """A config.json that transformers and this decoder both read."""
        out: dict[str, object] = {
            "architectures": [f"{FAMILIES[self.family].arch}ForCausalLM"],
            "model_type": self.family,
            **{name: getattr(self, field) for name, field in _FIELDS.items()},
            "hidden_act": "silu",
            "torch_dtype": dtype,
        }
        if self.rope_scaling is not None:
            out["rope_scaling"] = self.rope_scaling.to_hf()
        if self.family == "llama":
            out |= {"attention_bias": False, "mlp_bias": False}
        if self.bos_token_id is not None:
            out["bos_token_id"] = self.bos_token_id
        if self.eos_token_ids:
            ids = self.eos_token_ids
            out["eos_token_id"] = ids[0] if len(ids) == 1 else list(ids)
        if self.num_experts:
            out |= {name: getattr(self, name) for name in _EXPERT_FIELDS}
            out |= {"decoder_sparse_step": 1, "mlp_only_layers": []}
        return out


def read_object(path: Path) -> dict[str, object]:
    """The JSON object in a file of a checkpoint. FormatError."""
    value = json_value(file_text(path, MAX_JSON_BYTES), str(path))
    if not isinstance(value, dict):
        raise FormatError(f"{path} holds {shown(value)}, which is no JSON object; another file "
                          "belongs there")
    return value


def read_config(folder: Path) -> ModelConfig:
    """ModelConfig of a Hugging Face folder; a generation_config's stop tokens are added."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelConfigError(f"{folder} has no config.json; give a Hugging Face model folder")
    config = ModelConfig.from_hf(read_object(path))
    generation = folder / "generation_config.json"
    if generation.is_file():
        raw = read_object(generation).get("eos_token_id")
        extra = (token for token in _token_ids(raw) if isinstance(token, int))
        config = replace(
            config, eos_token_ids=tuple(dict.fromkeys((*config.eos_token_ids, *extra)))
        )
    return config


def _token_ids(value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _table(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A table of the config, empty where there is none."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _rope_theta(raw: Mapping[str, object]) -> object:
    for place in (raw, _table(raw, "rope_parameters"), _table(raw, "rope_scaling")):
        if place.get("rope_theta") is not None:
            return place["rope_theta"]
    return 10000.0


def _rope_scaling(raw: Mapping[str, object]) -> dict[str, object] | None:
    place = _table(raw, "rope_scaling") or _table(raw, "rope_parameters")
    kind = place.get("rope_type") or place.get("type") or "default"
    if kind == "default":
        return None
    if kind not in ("llama3", "linear"):
        raise ModelConfigError(
            f"rope_scaling type {kind!r} is not supported by the bundled decoder (default, linear, "
            "llama3 are); use a checkpoint without it"
        )
    return {
        "kind": kind, "factor": place.get("factor"),
        "low_freq_factor": place.get("low_freq_factor", 1.0),
        "high_freq_factor": place.get("high_freq_factor", 4.0),
        "original_max_position": place.get("original_max_position_embeddings", 8192),
    }


def _refuse_unsupported(raw: Mapping[str, object], family: str) -> None:
    """Features that would change the numbers silently if they were ignored."""
    windowed = raw.get("use_sliding_window", family == "mistral")
    window = raw.get("sliding_window") if windowed else None
    refused = [
        (bool(window), f"sliding_window {window}"),
        (bool(raw.get("mlp_bias")), "mlp_bias true"),
        (family != "qwen2" and bool(raw.get("attention_bias")), "attention_bias true"),
        (raw.get("hidden_act", "silu") != "silu", f"hidden_act {raw.get('hidden_act')!r}"),
        (bool(raw.get("mlp_only_layers")), "mlp_only_layers"),
        (raw.get("decoder_sparse_step", 1) != 1, "decoder_sparse_step other than 1"),
        (raw.get("partial_rotary_factor", 1.0) != 1.0, "partial_rotary_factor"),
    ]
    require(
        *((not found, f"the bundled decoder does not implement {what} of this {family} model; "
           "choose another checkpoint") for found, what in refused),
        error=ModelConfigError,
    )
