"""The declared shape of an engine file: what each key of it may hold.

Keys and defaults are the fields of `engine_profile`; here stand the ranges that a type alone does
not say, with the words of the rule.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, ValidationError, ValidationInfo, create_model
from pydantic import Field as Bound

from specsim.checked import Problem, Rule, Shape, Texts, problem_of
from specsim.errors import ProfileError, closest, shown
from specsim.latency.engine_profile import FEATURES, EngineProfile, Scheduler, Server, version_key
from specsim.latency.overheads import Overheads
from specsim.methods.base import METHODS

MAX_NUMBER = 10_000_000  # of sequences, tokens, blocks
WHOLE = Annotated[int, Bound(ge=0, le=MAX_NUMBER), Rule(f"a whole number up to {MAX_NUMBER}")]
COUNT = Annotated[int, Bound(ge=1, le=MAX_NUMBER)]
SCALE = Annotated[float, Bound(ge=0.05, le=20), Rule(
    "a factor from 0.05 to 20 (1: kernels take what the hardware profile says)"
)]
SECONDS = Annotated[float, Bound(ge=0, lt=1), Rule(
    "seconds from 0 to below 1 (milliseconds are written 1e-3)"
)]
NAME = Annotated[str, Bound(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$"), Rule(
    "text of up to 60 small letters, digits, '.', '_' or '-'"
)]
VERSION = Annotated[str, Bound(min_length=1)]
POSITIVE = Annotated[int | float, Bound(gt=0, le=MAX_NUMBER)]


def _known(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    for name in names:
        if name not in METHODS:
            raise ValueError(
                f"{info.field_name} has {name[:60]!r}, which is not known; "
                f"{closest(name, METHODS)}methods: {', '.join(METHODS)}"
            )
    return names


def _versions(found: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    for what, version in found.items():
        if what not in METHODS and what not in FEATURES:
            raise ValueError(
                f"{info.field_name} has {what[:60]!r}, which is neither a method nor one of "
                f"{', '.join(FEATURES)}"
            )
        if not any(version_key(version)):
            raise ValueError(
                f"{info.field_name} of {what} is {shown(version)}; it must be a version: '0.33'"
            )
    return found


METHOD_NAMES = Annotated[Texts, AfterValidator(_known)]
VERSIONS = Annotated[dict[str, str], AfterValidator(_versions), Rule("a table of versions")]
# Lists of a file as tuples, which strict mode would not take.
LENGTHS = Annotated[tuple[WHOLE, ...], Bound(strict=False)]
TIER = Annotated[tuple[COUNT, LENGTHS], Bound(strict=False)]
LIMIT = Annotated[tuple[COUNT, POSITIVE], Bound(strict=False)]
SIZES = Annotated[tuple[COUNT, WHOLE, WHOLE, WHOLE, WHOLE], Bound(strict=False)]
RULE = Annotated[
    tuple[str, Literal["custom", "fused", "nccl"],
          Annotated[tuple[LIMIT, ...], Bound(strict=False)]],
    Bound(strict=False),
]
LATENT_RULE = Annotated[
    tuple[str, Literal["expanded", "rows", "walked"], str], Bound(strict=False),
]
SHARE = Annotated[float, Bound(ge=0, le=1)]

# By the type of a field, and for single ones.
_BY_TYPE: dict[object, object] = {
    int: WHOLE,
    float: Annotated[float, Bound(ge=0, le=MAX_NUMBER)],
    tuple[str, ...]: Texts,
    Mapping[str, str]: Annotated[dict[str, str], Rule("a table of texts")],
    Mapping[str, int]: Annotated[dict[str, POSITIVE], Rule("a table of numbers above 0")],
    Mapping[str, float]: Annotated[dict[str, SCALE], Rule("a table of factors from 0.05 to 20")],
}
TARGETS = Annotated[
    tuple[Literal["dense", "routed", "recurrent"], ...], Bound(strict=False),
    Rule("a list of 'dense', 'routed', 'recurrent'"),
]
_ENGINE: dict[str, object] = {
    "name": NAME, "version": VERSION, "methods": METHOD_NAMES, "eager_drafters": METHOD_NAMES,
    "piecewise_targets": TARGETS,
    "graph_unit": Annotated[Literal["tokens", "requests"], Rule("'tokens' or 'requests'")],
    "max_num_seqs": COUNT, "max_num_batched_tokens": COUNT, "block_size": COUNT,
    "state_slots": COUNT, "spec_state_slots": COUNT,
    "kernel_scale": SCALE, "drafter_scale": SCALE, "expert_scale": SCALE,
    "by_memory": Annotated[tuple[SIZES, ...], Bound(strict=False), Rule(
        "a list of [GiB, sequences, tokens, graph, graph from tp 4]"
    )],
    "gpu_memory_utilization": Annotated[float, Bound(ge=0.05, le=1)],
    "latent_verify": Annotated[tuple[LATENT_RULE, ...], Bound(strict=False), Rule(
        "a list of [architecture, 'expanded' or 'rows' or 'walked', before version or '']"
    )],
    "all_reduce": Annotated[tuple[RULE, ...], Bound(strict=False), Rule(
        "a list of [where, 'custom' or 'fused' or 'nccl', [[GPUs, MiB], ...]]"
    )],
}
_SCHEDULER: dict[str, object] = {
    "sync_methods": METHOD_NAMES, "sync_targets": TARGETS,
    "output_reserve": SHARE, "output_reserve_min": SHARE,
    "victim": Annotated[Literal["last", "fewest_tokens"], Rule("'last' or 'fewest_tokens'")],
    "adaptive_tiers": Annotated[
        tuple[TIER, ...], Bound(strict=False), Rule("a list of [batch from 1, [k, ...]]")
    ],
}


def _shape(profile: type, single: Mapping[str, object]) -> type[Shape]:
    """The table of a profile's class: its fields with their defaults."""
    hints = get_type_hints(profile)
    keys: dict[str, Any] = {
        f.name: (single.get(f.name) or _BY_TYPE.get(hints[f.name], hints[f.name]), _default(f))
        for f in fields(profile)
        if f.name not in ("overheads", "scheduler", "server", "sources")
    }
    return create_model(profile.__name__, __base__=Shape, **keys)


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else ...


_SERVER: dict[str, object] = {
    "gained": VERSIONS, "lost": VERSIONS,
    "dialect": Annotated[
        Literal["", "vllm", "sglang", "trtllm"], Rule("'vllm', 'sglang' or 'trtllm'")
    ],
}
_Seconds = _shape(Overheads, {f.name: SECONDS for f in fields(Overheads)})
EngineFile = create_model(
    "EngineFile",
    __base__=Shape,
    engine=(_shape(EngineProfile, _ENGINE), ...),
    overheads=(_Seconds, _Seconds()),
    scheduler=(_shape(Scheduler, _SCHEDULER), None),
    server=(_shape(Server, _SERVER), None),
    sources=(dict[str, object], {}),
)


def check_engine(raw: Mapping[str, object], where: str) -> None:
    """ProfileError with the first thing that is wrong with the tables of a file."""
    try:
        EngineFile.model_validate(raw)
    except ValidationError as error:
        raise ProfileError(f"{where}: {_line(problem_of(error, EngineFile))}") from None


def _line(found: Problem) -> str:
    """The problem in the words of engine files."""
    table, key = str(found.place[0]) if found.place else "", found.key
    if found.kind == "said":
        return found.rule
    if found.kind == "unknown" and len(found.place) == 1:
        *first, last = (f"[{name}]" for name in found.known)
        return f"unknown table {shown(key)}; known tables are {', '.join(first)} and {last}"
    if found.kind == "unknown":
        what = f"overhead {key!r}" if table == "overheads" else f"key {key!r} in [{table}]"
        return f"unknown {what}; {closest(key, sorted(found.known))}".rstrip("; ")
    if key in ("name", "version") and not found.value:
        return f"[engine] needs {key} as text"
    if len(found.place) < 2:
        given = "" if found.kind == "missing" else f", got {shown(found.value)}"
        return f"[{table}] must be a table{given}"
    what = f"overhead {key}" if table == "overheads" else key
    return f"{what} is {shown(found.value)}; it must be {found.rule}"
