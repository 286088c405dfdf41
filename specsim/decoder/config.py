"""What a decoder checkpoint is: one frozen record for Llama, Qwen2/2.5, Qwen3 and Qwen3-MoE.

`ModelConfig.from_hf` reads a Hugging Face config.json in the spellings of transformers 4 and 5
(`rope_theta` on top or inside `rope_parameters`, `head_dim` missing, `num_experts` or
`num_local_experts`). What this decoder cannot run exactly is refused, never approximated.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specsim.errors import ModelConfigError

# Hugging Face model_type -> (qkv bias, per-head q/k norm, experts)
FAMILIES: dict[str, tuple[bool, bool, bool]] = {
    "llama": (False, False, False),
    "mistral": (False, False, False),
    "qwen2": (True, False, False),
    "qwen3": (False, True, False),
    "qwen3_moe": (False, True, True),
}


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rescaled rotary frequencies: 'llama3' (piecewise by wavelength) or 'linear'."""

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


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
    qkv_bias: bool = False
    qk_norm: bool = False
    num_experts: int = 0  # 0: dense
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = True
    max_position: int = 8192
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
                     "vocab_size"):
            if getattr(self, name) < 1:
                raise ModelConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.num_heads % self.num_kv_heads:
            raise ModelConfigError(
                f"num_attention_heads {self.num_heads} is not a multiple of num_key_value_heads "
                f"{self.num_kv_heads}; fix the model's config"
            )
        if self.head_dim % 2:
            raise ModelConfigError(f"head_dim {self.head_dim} is odd; rotary embeddings need pairs")
        if self.num_experts and not 1 <= self.num_experts_per_tok <= self.num_experts:
            raise ModelConfigError(
                f"num_experts_per_tok {self.num_experts_per_tok} must lie in 1..{self.num_experts}"
            )

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
    def from_hf(cls, raw: Mapping[str, Any]) -> "ModelConfig":
        """Translate a Hugging Face config.json. Raises ModelConfigError naming what is refused."""
        family = str(raw.get("model_type", ""))
        if family not in FAMILIES:
            near = difflib.get_close_matches(family, FAMILIES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ModelConfigError(
                f"model_type {family!r} is not one the bundled decoder runs "
                f"({', '.join(FAMILIES)}){hint}"
            )
        bias, qk_norm, moe = FAMILIES[family]
        _refuse_unsupported(raw, family)
        try:
            hidden = int(raw["hidden_size"])
            heads = int(raw["num_attention_heads"])
            config = cls(
                family="llama" if family == "mistral" else family,
                hidden_size=hidden,
                num_layers=int(raw["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=int(raw.get("num_key_value_heads") or heads),
                head_dim=int(raw.get("head_dim") or hidden // heads),
                intermediate_size=int(raw.get("intermediate_size") or 0),
                vocab_size=int(raw["vocab_size"]),
                rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                rope_theta=_rope_theta(raw),
                rope_scaling=_rope_scaling(raw),
                tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
                qkv_bias=bias,
                qk_norm=qk_norm,
                max_position=int(raw.get("max_position_embeddings", 8192)),
                bos_token_id=raw.get("bos_token_id"),
                eos_token_ids=_token_ids(raw.get("eos_token_id")),
            )
        except KeyError as missing:
            raise ModelConfigError(
                f"the model config has no {missing.args[0]!r}; it is not a complete config.json"
            ) from None
        except (TypeError, ValueError) as error:
            raise ModelConfigError(
                f"a field of the model config is not a number: {error}"
            ) from None
        if not moe:
            return config
        return replace(
            config,
            num_experts=int(raw.get("num_experts") or raw.get("num_local_experts") or 0),
            num_experts_per_tok=int(raw.get("num_experts_per_tok", 8)),
            moe_intermediate_size=int(raw.get("moe_intermediate_size", 0)),
            norm_topk_prob=bool(raw.get("norm_topk_prob", False)),
        )

    def to_hf(self, dtype: str = "bfloat16") -> dict[str, Any]:
        """A config.json that transformers and this decoder both read."""
        arch = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}
        out: dict[str, Any] = {
            "architectures": [f"{arch[self.family]}ForCausalLM"],
            "model_type": self.family,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "tie_word_embeddings": self.tie_word_embeddings,
            "max_position_embeddings": self.max_position,
            "hidden_act": "silu",
            "torch_dtype": dtype,
        }
        if self.family == "llama":
            out |= {"attention_bias": False, "mlp_bias": False}
        if self.bos_token_id is not None:
            out["bos_token_id"] = self.bos_token_id
        if self.eos_token_ids:
            ids = self.eos_token_ids
            out["eos_token_id"] = ids[0] if len(ids) == 1 else list(ids)
        if self.rope_scaling is not None:
            scaling = self.rope_scaling
            out["rope_scaling"] = {"rope_type": scaling.kind, "factor": scaling.factor}
            if scaling.kind == "llama3":
                out["rope_scaling"] |= {
                    "low_freq_factor": scaling.low_freq_factor,
                    "high_freq_factor": scaling.high_freq_factor,
                    "original_max_position_embeddings": scaling.original_max_position,
                }
        if self.num_experts:
            out |= {
                "num_experts": self.num_experts,
                "num_experts_per_tok": self.num_experts_per_tok,
                "moe_intermediate_size": self.moe_intermediate_size,
                "norm_topk_prob": self.norm_topk_prob,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
            }
        return out


def read_config(folder: Path) -> ModelConfig:
    """ModelConfig of a Hugging Face folder; a generation_config's stop tokens are added."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelConfigError(f"{folder} has no config.json; give a Hugging Face model folder")
    try:
        config = ModelConfig.from_hf(json.loads(path.read_text("utf-8")))
    except json.JSONDecodeError as error:
        raise ModelConfigError(f"{path} is not valid JSON: {error}") from None
    generation = folder / "generation_config.json"
    if generation.is_file():
        extra = _token_ids(json.loads(generation.read_text("utf-8")).get("eos_token_id"))
        config = replace(
            config, eos_token_ids=tuple(dict.fromkeys((*config.eos_token_ids, *extra)))
        )
    return config


def _token_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, list | tuple) else (int(value),)


def _rope_theta(raw: Mapping[str, Any]) -> float:
    for place in (raw, raw.get("rope_parameters") or {}, raw.get("rope_scaling") or {}):
        if place.get("rope_theta") is not None:
            return float(place["rope_theta"])
    return 10000.0


def _rope_scaling(raw: Mapping[str, Any]) -> RopeScaling | None:
    place = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = place.get("rope_type") or place.get("type") or "default"
    if kind == "default":
        return None
    if kind not in ("llama3", "linear"):
        raise ModelConfigError(
            f"rope_scaling type {kind!r} is not supported by the bundled decoder (default, linear, "
            "llama3 are); use a checkpoint without it"
        )
    return RopeScaling(
        kind=kind,
        factor=float(place["factor"]),
        low_freq_factor=float(place.get("low_freq_factor", 1.0)),
        high_freq_factor=float(place.get("high_freq_factor", 4.0)),
        original_max_position=int(place.get("original_max_position_embeddings", 8192)),
    )


def _refuse_unsupported(raw: Mapping[str, Any], family: str) -> None:
    """Features that would change the numbers silently if they were ignored."""
    windowed = raw.get("use_sliding_window", family == "mistral")
    window = raw.get("sliding_window") if windowed else None
    refused = [
        (bool(window), f"sliding_window {window}"),
        (bool(raw.get("mlp_bias")), "mlp_bias true"),
        (family != "qwen2" and bool(raw.get("attention_bias")), "attention_bias true"),
        (raw.get("hidden_act", "silu") != "silu", f"hidden_act {raw.get('hidden_act')!r}"),
        (bool(raw.get("mlp_only_layers")), "mlp_only_layers"),
        (int(raw.get("decoder_sparse_step", 1)) != 1, "decoder_sparse_step other than 1"),
        (float(raw.get("partial_rotary_factor", 1.0)) != 1.0, "partial_rotary_factor"),
    ]
    for found, what in refused:
        if found:
            raise ModelConfigError(
                f"the bundled decoder does not implement {what} of this {family} model; choose "
                "another checkpoint"
            )
