"""What a file is, where it is no benchmark result: a trace, a model or a drafter.

    recognise(path)   TraceSummary, ModelFound, DrafterFound, or None (left to the importers of
                      `formats.bench`)

A model is a folder with a config.json, such a file itself, or a .gguf; told by the keys that every
Hugging Face config has. A trace is told by its first line (`formats.traces`).
"""

import json
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from specsim.errors import FormatError
from specsim.formats.bench.fields import as_mapping
from specsim.formats.gguf_header import looks_like_gguf, read_gguf_model
from specsim.formats.hf_config import load_config, model_from_config
from specsim.formats.hf_draft_shape import DraftConfig
from specsim.formats.hf_drafters import detect_kind, drafter_from_config
from specsim.formats.hf_object import read_json
from specsim.formats.traces import TraceOptions, detect_format, read_trace
from specsim.jsonable import picked
from specsim.model.counts import parameters
from specsim.model.drafter_counts import drafter_parameters
from specsim.model.spec import Drafter, ModelSpec
from specsim.sim.request import Request

_CONFIG_KEYS = ("model_type", "architectures", "speculators_model_type", "medusa_num_heads")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts of a trace's requests."""

    mean: float
    p50: float
    most: int

    def to_dict(self, name: str) -> dict[str, float]:
        return {f"{name}_mean": self.mean, f"{name}_p50": self.p50, f"{name}_max": self.most}


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace, added up while it was read once. span_s: from first to last request; 0 where the
    format has no times. burstiness: (mean / deviation of the gaps)^2, the gamma shape that
    `--burstiness` takes."""

    file: str
    format: str
    requests: int
    span_s: float
    burstiness: float | None
    prompt: Lengths
    output: Lengths
    sessions: int
    with_prefix_ids: bool

    def to_dict(self) -> dict[str, object]:
        rate = (self.requests - 1) / self.span_s if self.span_s > 0 else None
        return {
            **picked(self, "file format requests span_s"),
            "request_rate": rate,
            "burstiness": self.burstiness,
            **self.prompt.to_dict("prompt_tokens"),
            **self.output.to_dict("output_tokens"),
            "sessions": self.sessions or None,
            "with_prefix_ids": self.with_prefix_ids,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """The requests in specsim's own form, which `simulate --trace` reads; read again, so
        that a trace of any length takes no memory."""
        for r in read_trace(self.file, self.format, TraceOptions()):
            row: dict[str, object] = {"arrival_s": r.arrival_s, "prompt_tokens": r.prompt_tokens,
                   "output_tokens": r.output_tokens}
            yield row | {"session": r.session} if self.sessions else row


def summarise(file: str, kind: str, requests: Iterable[Request]) -> TraceSummary:
    """One pass over a trace's requests (at least one)."""
    prompts: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    sessions: set[int] = set()
    count, last, prefixes = 0, 0.0, False
    mean = square = 0.0  # of the gaps, updated as they come (Welford)
    for r in requests:
        if count:
            step = r.arrival_s - last - mean
            mean += step / count
            square += step * (r.arrival_s - last - mean)
        count, last = count + 1, r.arrival_s
        prompts[r.prompt_tokens] += 1
        outputs[r.output_tokens] += 1
        if r.session >= 0:
            sessions.add(r.session)
        prefixes = prefixes or bool(r.spans)
    spread = square / (count - 1) if count > 1 else 0.0
    shape = mean * mean / spread if spread > 0 else None
    return TraceSummary(
        file, kind, count, last, shape, _lengths(prompts), _lengths(outputs), len(sessions),
        prefixes,
    )


def _lengths(counts: Counter[int]) -> Lengths:
    total, values = counts.total(), sorted(counts)
    seen = list(accumulate(counts[value] for value in values))
    low, high = (values[bisect(seen, place)] for place in ((total - 1) // 2, total // 2))
    mean = sum(value * n for value, n in counts.items()) / total
    return Lengths(mean, (low + high) / 2, max(counts))


@dataclass(frozen=True, slots=True)
class ModelFound:
    """A model that can be served; `file` is what was read."""

    file: str
    format: str
    spec: ModelSpec

    def to_dict(self) -> dict[str, object]:
        s = self.spec
        return {
            **picked(self, "file format"), "kind": "model",
            **picked(s, "name family weights layers=n_layers hidden vocab"),
            "parameters": parameters(s).total, **picked(s, "mtp=mtp.name notes"),
        }


@dataclass(frozen=True, slots=True)
class DrafterFound:
    """A draft network. verifier: the model it says it drafts for, where it does."""

    file: str
    format: str
    drafter: Drafter
    verifier: str | None = None
    proposal_tokens: int | None = None

    def to_dict(self) -> dict[str, object]:
        d = self.drafter
        return {
            **picked(self, "file format"), "kind": "drafter", **picked(d, "name method=kind"),
            "layers": sum(group.count for group in d.layers),
            **picked(d, "hidden vocab draft_vocab"), "parameters": drafter_parameters(d),
            **picked(self, "verifier num_speculative_tokens=proposal_tokens notes=drafter.notes"),
        }


Recognised = TraceSummary | ModelFound | DrafterFound


def recognise(path: str | Path) -> Recognised | None:
    """None when it is neither trace nor model. FormatError or ModelConfigError when it is one
    and broken."""
    place = Path(path)
    try:
        folder, file = place.is_dir(), place.is_file()
    except (OSError, ValueError):
        return None
    if folder:
        file_in = place / "config.json"
        if not file_in.is_file() or not _has_config_keys(file_in):
            return None
        return _config(place)
    if not file:
        return None
    if place.suffix.lower() == ".gguf" or looks_like_gguf(place):
        return ModelFound(str(place), "GGUF header", read_gguf_model(place))
    if place.suffix.lower() == ".json" and _has_config_keys(place):
        return _config(place)
    return _trace(place)


def _trace(place: Path) -> TraceSummary | None:
    try:
        kind = detect_format(place)
    except FormatError:
        return None
    if kind == "mooncake" and not {"timestamp", "input_length"} <= _first_line(place).keys():
        return None  # any JSON object might be one of its lines
    return summarise(str(place), kind, read_trace(place, kind, TraceOptions()))


def _first_line(place: Path) -> Mapping[str, object]:
    """The object in the first line, empty where there is none."""
    with place.open(encoding="utf-8-sig", errors="replace") as file:
        try:
            return as_mapping(json.loads(file.readline(1_000_000)))
        except (ValueError, RecursionError):
            return {}


def _has_config_keys(place: Path) -> bool:
    """Whether it is a config: a JSON object with one of the keys that only configs have."""
    try:
        return any(key in _CONFIG_KEYS for key in read_json(place))
    except FormatError:
        return False


def _config(place: Path) -> Recognised:
    config, quant, name = load_config(place)
    if detect_kind(DraftConfig.of(config, name)) == "model":
        spec = model_from_config(config, name, quant, source=f"file {name}")
        return ModelFound(str(place), "Hugging Face config", spec)
    drafter = drafter_from_config(config, name)
    form = "speculators config" if config.get("speculators_model_type") else "Hugging Face config"
    speculators = as_mapping(config.get("speculators_config"))
    verifier = as_mapping(speculators.get("verifier")).get("name_or_path")
    methods = speculators.get("proposal_methods")
    first = as_mapping(methods[0] if isinstance(methods, list) and methods else None)
    tokens = first.get("speculative_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 < tokens < 1000:
        tokens = None
    named = verifier[:200] if isinstance(verifier, str) and verifier else None
    return DrafterFound(str(place), form, drafter, named, tokens)
