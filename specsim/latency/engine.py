"""EngineProfile: what a serving engine adds to the kernels, and the rules it schedules by.

Host times are wall seconds per engine step that the device does not hide. They are read from
`engines/*.toml`; each file names its engine, the versions it stands for, and the source of every
figure. `overheads` are the only fitted numbers of an engine; everything else is read from its
source code or documentation.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from specsim.data import data_root
from specsim.errors import FormatError, ProfileError
from specsim.methods.base import METHODS

MAX_FILE_BYTES = 1_000_000
MAX_NUMBER = 10_000_000  # of sequences, tokens, blocks


@dataclass(frozen=True, slots=True)
class Overheads:
    """Wall seconds that the host adds, beyond the kernels of `specsim.roofline`.

    step_s: every step: scheduling, input preparation, output handling not hidden by the device.
    seq_s: the same per decoding sequence.
    layer_s: per layer and step: small kernels and gaps that the op list does not hold.
    sync_s: per sum over GPUs of a step, beyond its transfer: waiting for the last GPU to arrive.
    spec_step_s: once per step while speculation is on (rejection sampler, drafter metadata).
    spec_seq_s: the same per decoding sequence.
    draft_pass_s: between draft passes that replay a CUDA graph.
    eager_kernel_s: launch time of one kernel outside any CUDA graph.
    mixed_step_s: extra of a step that holds prefill tokens.
    request_s: front end per request before its first token (HTTP, tokeniser, first scheduling).
    host_step_s: what the host needs to prepare a step; it binds only when the device is faster.
    ngram_seq_s: one n-gram or suffix lookup of one sequence on the host.
    tree_pass_s: extra of a draft pass that keeps several branches (top-k, mask building).
    """

    step_s: float = 0.0
    seq_s: float = 0.0
    layer_s: float = 0.0
    sync_s: float = 0.0
    spec_step_s: float = 0.0
    spec_seq_s: float = 0.0
    draft_pass_s: float = 0.0
    eager_kernel_s: float = 0.0
    mixed_step_s: float = 0.0
    request_s: float = 0.0
    host_step_s: float = 0.0
    ngram_seq_s: float = 0.0
    tree_pass_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine at one version.

    since: first version the profile stands for, where that is older than `version`.
    graph_unit: 'tokens' or 'requests': what graph_max counts. Above it decode runs eagerly.
    graph_max_by_arch: exceptions by hardware arch.
    eager_drafters: methods whose draft passes run without CUDA graphs.
    spec_max_num_seqs: running requests when speculation is on and nothing was asked for (0: same).
    state_copies: extra passes over a recurrent state to commit an accepted snapshot.
    draft_model_first_rows: rows per sequence of a draft model's first pass (0: as vLLM, all that
        was verified and the bonus token).
    separate_passes: every prompt chunk and the decoding batch of a step run as passes of their
        own, each reading the weights, instead of as one.
    unsplit_verify_families: model families whose attention runs on a kernel that splits the cache
        over thread blocks only when few sequences ask one query each (see `latency.unsplit`): a
        verify step walks the whole context in one block, at unsplit_verify_s_per_token per cached
        token and layer; unsplit_blocks_per_sm blocks of heads 256 wide share an SM.
    whole_expert_formats: weight formats whose routed-expert kernel streams every expert of the GPU
        in every step, whether a token chose it or not.
    kernel_scale, drafter_scale: factors on the kernel seconds of the target (with sampling) and of
        the drafter, from a calibration on one server (1: as the device's profile has them).
    expert_scale: a further factor on those of the target's routed experts.
    k_multiple_of_n_predict: MTP draft length must be a multiple of the heads in the checkpoint.
    """

    name: str
    version: str
    since: str = ""
    title: str = ""
    aliases: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    overheads: Overheads = Overheads()
    graph_unit: str = "tokens"
    graph_max: int = 512
    graph_max_by_arch: Mapping[str, int] = field(default_factory=dict)
    eager_drafters: tuple[str, ...] = ()
    max_num_seqs: int = 1024
    spec_max_num_seqs: int = 0
    max_num_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.92
    block_size: int = 16
    chunked_prefill: bool = True
    mixed_steps: bool = True
    state_copies: float = 0.0
    draft_model_first_rows: int = 0
    separate_passes: bool = False
    max_k: int = 0
    k_multiple_of_n_predict: bool = True
    kernel_variant: str = ""  # preferred suffix of kernel tables, e.g. 'sglang'
    unsplit_verify_families: tuple[str, ...] = ()
    unsplit_verify_s_per_token: float = 0.0
    unsplit_blocks_per_sm: float = 2.0
    whole_expert_formats: tuple[str, ...] = ()
    kernel_scale: float = 1.0
    drafter_scale: float = 1.0
    expert_scale: float = 1.0
    sources: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

    def __hash__(self) -> int:
        scales = (self.kernel_scale, self.drafter_scale, self.expert_scale)
        return hash((self.name, self.version, self.overheads, scales))

    def graph_limit(self, arch: str) -> int:
        return self.graph_max_by_arch.get(arch, self.graph_max)


def _read(path: Path) -> EngineProfile:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise FormatError(f"{path.name} is larger than 1 MB; an engine profile is a few kB of TOML")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: syntax, encoding
        raise FormatError(f"{path.name} is not valid TOML: {error}") from None
    return engine_from_dict(raw, path.name)


def _table(raw: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ProfileError(f"{where}: [{key}] must be a table, got {value!r}")
    return value


def _checked(key: str, value: Any, default: Any, where: str) -> Any:
    """`value` in the form of the field's default; ProfileError naming the rule it breaks."""
    rule = ""
    if isinstance(default, bool):
        rule = "" if isinstance(value, bool) else "true or false"
    elif isinstance(default, int):
        whole = isinstance(value, int) and not isinstance(value, bool)
        rule = "" if whole and 0 <= value <= MAX_NUMBER else f"a whole number up to {MAX_NUMBER}"
    elif isinstance(default, float):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        rule = "" if number and 0 <= value <= MAX_NUMBER else f"a number from 0 to {MAX_NUMBER}"
    elif isinstance(default, str):
        rule = "" if isinstance(value, str) else "text"
    elif isinstance(default, tuple):
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        rule = "" if texts else "a list of texts"
        value = tuple(value) if texts else value
    else:
        table = isinstance(value, dict) and all(
            isinstance(n, int | float) and not isinstance(n, bool) and 0 < n <= MAX_NUMBER
            for n in value.values()
        )
        rule = "" if table else "a table of numbers above 0"
    if rule:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise ProfileError(f"{where}: {key} is {shown}; it must be {rule}")
    return value


def engine_from_dict(raw: Mapping[str, Any], where: str) -> EngineProfile:
    """Check a parsed engine TOML. Unknown keys, wrong types and out-of-range values are refused."""
    unknown = set(raw) - {"engine", "overheads", "sources"}
    if unknown:
        raise ProfileError(
            f"{where}: unknown table {sorted(unknown)[0]!r}; "
            "known tables are [engine], [overheads] and [sources]"
        )
    over = _table(raw, "overheads", where)
    known = {f.name for f in fields(Overheads)}
    for key, value in over.items():
        if key not in known:
            near = get_close_matches(key, sorted(known), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ProfileError(f"{where}: unknown overhead {key!r}{hint}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ProfileError(
                f"{where}: overhead {key} is {value!r}; it must be seconds from 0 to below 1 "
                "(milliseconds are written 1e-3)"
            )
    body = _table(raw, "engine", where)
    defaults = EngineProfile("", "")
    known_keys = [f.name for f in fields(EngineProfile) if f.name not in ("overheads", "sources")]
    clean: dict[str, Any] = {}
    for key, value in body.items():
        if key not in known_keys:
            near = get_close_matches(key, known_keys, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ProfileError(f"{where}: unknown key {key!r} in [engine]{hint}")
        clean[key] = _checked(key, value, getattr(defaults, key), where)
    for key in ("name", "version"):
        if not clean.get(key):
            raise ProfileError(f"{where}: [engine] needs {key} as text")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,59}", clean["name"]):
        raise ProfileError(
            f"{where}: name is {clean['name'][:60]!r}; it must be up to 60 small letters, digits, "
            "'.', '_' or '-'"
        )
    for key in ("methods", "eager_drafters"):
        for method in clean.get(key, ()):
            if method not in METHODS:
                near = get_close_matches(method, METHODS, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise ProfileError(
                    f"{where}: {key} has {method[:60]!r}, which is not known; {hint}methods: "
                    f"{', '.join(METHODS)}"
                )
    for key in ("max_num_seqs", "max_num_batched_tokens", "block_size", "graph_max"):
        if clean.get(key, 1) < 1:
            raise ProfileError(
                f"{where}: {key} is {clean[key]!r}; it must be a whole number from 1"
            )
    for key in ("kernel_scale", "drafter_scale", "expert_scale"):
        if not 0.05 <= clean.get(key, 1.0) <= 20:
            raise ProfileError(
                f"{where}: {key} is {clean[key]!r}; it must be a factor from 0.05 to 20 "
                "(1: kernels take what the hardware profile says)"
            )
    share = clean.get("gpu_memory_utilization", 0.9)
    if not 0.05 <= share <= 1:
        raise ProfileError(f"{where}: gpu_memory_utilization is {share!r}; it must be 0.05 to 1")
    if clean.get("graph_unit", "tokens") not in ("tokens", "requests"):
        raise ProfileError(
            f"{where}: graph_unit is {clean['graph_unit']!r}; it must be 'tokens' or 'requests'"
        )
    sources = {str(k): str(v) for k, v in _table(raw, "sources", where).items()}
    return EngineProfile(overheads=Overheads(**over), sources=sources, **clean)


def _version_key(text: str) -> tuple[int, ...]:
    digits = []
    for part in text.split(".")[:3]:
        number = re.match(r"\d*", part)  # '0rc1' is 0
        digits.append(int(number.group() or 0) if number else 0)
    return tuple(digits)


@lru_cache(maxsize=1)
def list_engines() -> tuple[EngineProfile, ...]:
    """All packaged engine profiles, by name and version."""
    found = [_read(path) for path in sorted(data_root("engines").glob("*.toml"))]
    return tuple(sorted(found, key=lambda e: (e.name, _version_key(e.version))))


def find_engine(name: str, version: str | None = None) -> EngineProfile:
    """The profile of `name` ('vllm', 'vllm 0.25.1', 'SGLang', 'trtllm', a .toml path).

    Without a version the newest profile. With one: the newest profile that begins no later than
    it, or the oldest there is. ProfileError for an unknown engine.
    """
    text = name.strip()
    if text.lower().endswith(".toml"):
        path = Path(text)
        if not path.is_file():
            raise ProfileError(f"engine profile {text!r} is not a file; give a path to a .toml")
        return _read(path)
    for joint in ("==", "@", " "):
        if joint in text and version is None:
            text, version = (part.strip() for part in text.split(joint, 1))
    key = text.lower().replace("_", "").replace("-", "").replace(" ", "")
    same = [e for e in list_engines() if key == e.name or key in e.aliases]
    if not same:
        names = sorted({e.name for e in list_engines()})
        near = get_close_matches(key, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ProfileError(
            f"engine {name[:60]!r} is not known; {hint}known engines: {', '.join(names)}"
        )
    if version is None:
        return same[-1]
    if not re.fullmatch(r"v?\d{1,6}(\.\d{1,6})*([-.+]?[a-z]\w*)*", version.strip().lower()):
        raise ProfileError(
            f"engine version {version[:40]!r} of {same[-1].name} is not a version; write "
            f"{same[-1].name}=={same[-1].version} or leave it out"
        )
    wanted = _version_key(version.strip().lower().lstrip("v"))
    older = [e for e in same if _version_key(e.since or e.version) <= wanted]
    return older[-1] if older else same[0]
