"""The models a run measures: shapes by name, with real or random weights.

Several sizes are measured together, because one size alone cannot tell weights from overhead. The
CPU runs one family at three sizes with one vocabulary, so that the small one can draft for the
others; a GPU runs Qwen3 at two sizes and the expert layers of a third.

Shapes are from the models' published configs (SmolLM2, Qwen3: Apache-2.0). Weights are random but
for the packaged model, and never zeros: products of zeros run 13 % faster on an H200.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specsim.decoder.config import ModelConfig, read_config
from specsim.decoder.models import DEFAULT_MODEL, find_folder
from specsim.errors import UsageError

_SMOLLM2 = ModelConfig(
    family="llama", hidden_size=576, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64,
    intermediate_size=1536, vocab_size=49152, rms_norm_eps=1e-5, rope_theta=1e5,
    tie_word_embeddings=True, max_position=8192,
)
_QWEN3 = ModelConfig(
    family="qwen3", hidden_size=4096, num_layers=36, num_heads=32, num_kv_heads=8, head_dim=128,
    intermediate_size=12288, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1e6,
    max_position=81920,  # beyond what it was trained for: long contexts are timed, not understood
)
_SHAPES: dict[str, ModelConfig] = {
    "smollm2-135m": _SMOLLM2,
    "smollm2-360m": replace(_SMOLLM2, hidden_size=960, num_layers=32, num_heads=15, num_kv_heads=5,
                            intermediate_size=2560),
    "smollm2-1.7b": replace(_SMOLLM2, hidden_size=2048, num_layers=24, num_heads=32,
                            num_kv_heads=32, intermediate_size=8192, rope_theta=1.3e5),
    "qwen3-0.6b": replace(_QWEN3, hidden_size=1024, num_layers=28, num_heads=16,
                          intermediate_size=3072, tie_word_embeddings=True),
    "qwen3-8b": _QWEN3,
    # 12 of 48 layers: what fits a short run; each layer is whole.
    "qwen3-30b-a3b-12l": replace(
        _QWEN3, family="qwen3_moe", hidden_size=2048, num_layers=12, num_kv_heads=4,
        intermediate_size=6144, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
    ),
    # The same layer at a size for two cores.
    "moe-small": replace(
        _QWEN3, family="qwen3_moe", hidden_size=512, num_layers=4, num_heads=8, num_kv_heads=2,
        head_dim=64, intermediate_size=1024, vocab_size=4096, num_experts=32,
        num_experts_per_tok=4, moe_intermediate_size=384, max_position=4096,
    ),
}


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """source: what `decoder.models.load_model` takes, '' for random weights of `config`."""

    name: str
    config: ModelConfig
    source: str = ""

    @property
    def weights(self) -> str:
        return "real" if self.source else "random"

    def to_dict(self, dtype: str) -> dict[str, object]:
        torch_name = {"bf16": "bfloat16", "fp32": "float32"}[dtype]
        return {"config": self.config.to_hf(torch_name), "weights": self.weights}


def find_model(name: str) -> MeasuredModel:
    """A shape by name, a Hugging Face folder or a .gguf file.

    The packaged model has its real weights where they have been fetched, random ones of its shape
    elsewhere: its times are the same.
    """
    if name.lower() == DEFAULT_MODEL:
        try:
            folder = find_folder(name, fetch=False)
        except UsageError:
            return MeasuredModel(name.lower(), _SHAPES[name.lower()])
        return MeasuredModel(name.lower(), read_config(folder), str(folder))
    if name.lower() in _SHAPES:
        return MeasuredModel(name.lower(), _SHAPES[name.lower()])
    try:
        folder = find_folder(name)
    except UsageError:
        raise UsageError(
            f"model {name!r} is neither a folder, a .gguf file nor a known shape "
            f"({', '.join(_SHAPES)})"
        ) from None
    return MeasuredModel(Path(name).stem, read_config(folder), str(folder))


def default_models(device: str, grid: str) -> tuple[str, ...]:
    """Dense models, small to large."""
    if device == "cuda":
        return ("qwen3-0.6b", "qwen3-8b")
    return ("smollm2-135m", "smollm2-360m", *(("smollm2-1.7b",) if grid == "full" else ()))


def default_moe(device: str) -> str:
    return "qwen3-30b-a3b-12l" if device == "cuda" else "moe-small"


def check_together(models: Sequence[MeasuredModel]) -> None:
    """UsageError for two models of one name, or a model with experts among the dense ones."""
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"model {name!r} is given twice; give each model once")
    for model in models:
        if model.config.num_experts:
            raise UsageError(
                f"model {model.name!r} has experts; dense models are measured whole, experts as "
                "layers of a fixed shape (part F)"
            )
