"""The models a run measures: shapes by name, with real or random weights.

Several sizes are measured together, because one size alone cannot tell weights from overhead. The
CPU runs one family at three sizes with one vocabulary, so that the small one can draft for the
others; a GPU runs Qwen3 at two sizes and the expert layers of a third.

Weights are random but for the packaged model, and never zeros: products of zeros run 13 % faster on
an H200.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specsim.data import data_table
from specsim.decoder.config import ModelConfig, read_config
from specsim.decoder.models import DEFAULT_MODEL, find_folder
from specsim.errors import UsageError


@cache
def shapes() -> dict[str, ModelConfig]:
    """The known shapes by name."""
    raw = data_table("catalog", "measure.toml")["shapes"]
    like = {name: raw[entry["like"]] if "like" in entry else {} for name, entry in raw.items()}
    return {
        name: ModelConfig(**{**like[name], **{k: v for k, v in entry.items() if k != "like"}})
        for name, entry in raw.items()
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
    known = shapes().get(name.lower())
    if known is not None:
        if name.lower() == DEFAULT_MODEL:
            with suppress(UsageError):
                folder = find_folder(name, fetch=False)
                return MeasuredModel(name.lower(), read_config(folder), str(folder))
        return MeasuredModel(name.lower(), known)
    try:
        folder = find_folder(name)
    except UsageError:
        raise UsageError(
            f"model {name!r} is neither a folder, a .gguf file nor a known shape "
            f"({', '.join(shapes())})"
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
