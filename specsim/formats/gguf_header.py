"""The header of a GGUF file as a ModelSpec: `specsim predict model.gguf`. Weights are never read.

    magic "GGUF", version 2 or 3, number of tensors, number of metadata entries (little endian)
    metadata: key, type, value; an array is type, length, values
    tensors:  name, dimensions, quantisation type, offset

(Format: ggml's docs/gguf.md, MIT.) Files are untrusted: every length is checked against a limit
and against what is left of the file, long arrays (the tokenizer's) are skipped, and nothing is
read beyond the header. Metadata becomes the fields of a Hugging Face config (`gguf_config`), and
the readers of those do the rest. Quantised layers get their true mean bytes per weight and are
multiplied in 16 bits, as kernels that unpack weights do.
"""

import struct
from collections import Counter
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import BinaryIO

from specsim.data import data_table
from specsim.errors import FormatError
from specsim.formats.gguf_config import check_sum, config_of
from specsim.formats.hf_config import model_from_config
from specsim.model.part import WeightFormat
from specsim.model.spec import ModelSpec
from specsim.model.weights import reformat_layers

MAX_HEADER_BYTES = 200_000_000
MAX_ENTRIES = 100_000
MAX_TENSORS = 1_000_000
MAX_STRING = 1_000_000
MAX_KEPT = 4096  # values of an array that are kept
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    name: str
    shape: tuple[int, ...]
    type_name: str
    bytes: float
    block: int  # weights that are packed together
    offset: int  # bytes from the header's data_start

    @property
    def weights(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """metadata: key -> value; arrays longer than were to be kept are their length as ('array', n).
    data_start: where the tensors' data begin, bytes from the beginning of the file."""

    metadata: dict[str, object]
    tensors: tuple[GgufTensor, ...]
    data_start: int


def looks_like_gguf(path: Path) -> bool:
    """Whether a regular file begins with GGUF's magic."""
    try:
        if not path.is_file():  # a pipe would wait for a writer
            return False
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def read_gguf_header(path: str | Path, most_kept: int = MAX_KEPT) -> GgufHeader:
    """Metadata and tensor list; most_kept: the longest array whose values are kept. FormatError
    naming what is wrong with the file."""
    where = Path(path)
    try:
        if not where.is_file():
            raise FormatError(f"{where}: not a file; give a .gguf file or a config.json")
        size = where.stat().st_size
        with where.open("rb") as file:
            return _Reader(file, size, where.name, most_kept).header()
    except OSError as error:
        raise FormatError(f"{where}: cannot be read ({error.strerror or error})") from None


def read_gguf_model(path: str | Path) -> ModelSpec:
    """The model a GGUF file describes. FormatError or ModelConfigError with the way out."""
    where = Path(path)
    header = read_gguf_header(where)
    tensors = {tensor.name: tensor.shape for tensor in header.tensors}
    config = config_of(header.metadata, tensors, where.name)
    spec = model_from_config(config, where.stem, source=f"file {where.name}")
    check_sum(spec, header.metadata, tensors, where.name)
    bits, name = bits_per_weight(header)
    by_name = {tensor.name: tensor for tensor in header.tensors}
    embed = _format(by_name.get("token_embd.weight"))
    head = _format(by_name.get("output.weight")) or embed
    if bits < 15:
        spec = replace(
            spec, layers=reformat_layers(spec.layers, _unpacked(bits / 8)), weights=name.lower(),
        )
    return replace(
        spec, name=where.stem, embed_weight=embed or spec.embed_weight,
        head_weight=head or spec.head_weight,
        notes=(*spec.notes, f"GGUF {name}, {bits:.2f} bits per weight, multiplied in 16 bits"),
    )


def _format(tensor: GgufTensor | None) -> WeightFormat | None:
    """The format of one matrix; None where it is 16 bits or more (priced as bf16) or missing."""
    if tensor is None or not tensor.weights or tensor.bytes / tensor.weights >= 1.9:
        return None
    return _unpacked(tensor.bytes / tensor.weights)


def _unpacked(bytes_per_weight: float) -> WeightFormat:
    """Any packed type: the kernels that unpack int4 weights, with the bytes that this one has."""
    return WeightFormat("int4", bytes_per_weight, "bf16")


def bits_per_weight(header: GgufHeader) -> tuple[float, str]:
    """(bits per weight of the matrices inside the layers, the type most of them have)."""
    inside = [t for t in header.tensors if t.name.startswith("blk.") and len(t.shape) >= 2]
    chosen = inside or [t for t in header.tensors if len(t.shape) >= 2]
    total = sum(tensor.weights for tensor in chosen)
    if not total:
        return 16.0, "without matrices"
    by_type: Counter[str] = Counter()
    for tensor in chosen:
        by_type[tensor.type_name] += tensor.weights
    [(most, _)] = by_type.most_common(1)
    return 8 * sum(tensor.bytes for tensor in chosen) / total, most


class _Reader:
    """Checked reads from the beginning of a file."""

    def __init__(self, file: BinaryIO, size: int, name: str, most_kept: int) -> None:
        self._file = file
        self._left = min(size, MAX_HEADER_BYTES)
        self._name = name
        self._most_kept = most_kept

    def header(self) -> GgufHeader:
        if self._take(4) != b"GGUF":
            raise FormatError(f"{self._name}: does not begin with GGUF; it is no GGUF file")
        (version,) = struct.unpack("<I", self._take(4))
        if version not in (2, 3):
            raise FormatError(
                f"{self._name}: GGUF version {version} (byte order included) is not read; known "
                "are 2 and 3, little endian"
            )
        tensors, entries = struct.unpack("<QQ", self._take(16))
        if tensors > MAX_TENSORS or entries > MAX_ENTRIES:
            raise FormatError(
                f"{self._name}: {tensors} tensors and {entries} metadata entries are more than any "
                "model has; the header is damaged"
            )
        metadata: dict[str, object] = {}
        for _ in range(entries):
            key = self._string()
            (kind,) = struct.unpack("<I", self._take(4))
            metadata[key] = self._value(kind, key)
        found = tuple(self._tensor() for _ in range(tensors))
        align = metadata.get("general.alignment", 32)
        if isinstance(align, bool) or not isinstance(align, int) or align < 1:
            raise FormatError(f"{self._name}: general.alignment is {str(align)[:40]!a}; it must be "
                              "a whole number of at least 1")
        return GgufHeader(metadata, found, -(-self._file.tell() // align) * align)

    def _take(self, count: int) -> bytes:
        if count > self._left:
            raise FormatError(
                f"{self._name}: the header ends before it should; the file is cut off or damaged"
            )
        raw = self._file.read(count)
        if len(raw) != count:
            raise FormatError(f"{self._name}: the file is cut off in its header")
        self._left -= count
        return raw

    def _string(self) -> str:
        (length,) = struct.unpack("<Q", self._take(8))
        if length > MAX_STRING:
            raise FormatError(f"{self._name}: a text of {length} bytes in the header; at most "
                              f"{MAX_STRING} are read")
        return self._take(length).decode("utf-8", errors="replace")

    def _value(self, kind: int, key: str) -> object:
        if kind in _SCALARS:
            code = _SCALARS[kind]
            (value,) = struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))
            return value
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise FormatError(f"{self._name}: {key[:60]!a} has the unknown type {kind}")
        (inner,) = struct.unpack("<I", self._take(4))
        (length,) = struct.unpack("<Q", self._take(8))
        if inner in _SCALARS:
            width = struct.calcsize("<" + _SCALARS[inner])
            if length > self._most_kept:
                self._skip(length * width)
                return ("array", length)
            raw = self._take(length * width)
            return struct.unpack(f"<{length}{_SCALARS[inner]}", raw)
        if inner != _STRING:
            raise FormatError(f"{self._name}: {key[:60]!a} is an array of type {inner}")
        if length * 8 > self._left:
            raise FormatError(f"{self._name}: {key[:60]!a} has {length} texts, more than the "
                              "file holds; it is cut off or damaged")
        kept = [text for _ in range(length) if (text := self._string()) is not None
                and length <= self._most_kept]
        return tuple(kept) if length <= self._most_kept else ("array", length)

    def _skip(self, count: int) -> None:
        while count > 0:
            step = min(count, 1 << 20)
            self._take(step)
            count -= step

    def _tensor(self) -> GgufTensor:
        name = self._string()
        (dimensions,) = struct.unpack("<I", self._take(4))
        if not 1 <= dimensions <= 8:
            raise FormatError(f"{self._name}: tensor {name[:60]!a} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions))
        kind, offset = struct.unpack("<IQ", self._take(12))
        if any(size > 1 << 40 for size in shape):
            raise FormatError(f"{self._name}: tensor {name[:60]!a} has impossible sizes")
        types = data_table("catalog", "gguf.toml")["types"]
        type_name, block, size = types.get(str(kind), (f"type {kind}", 1, 2))
        return GgufTensor(name, shape, type_name, prod(shape) / block * size, block, offset)
