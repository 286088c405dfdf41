"""The TOML layout of a hardware profile: which keys there are, and what is a sane value.

`profile_from_document` turns the nested tables of one file into a `HardwareProfile`
(`specsim.hardware.toml_file` reads and writes them). Every number is checked against a range
wide enough for any device of the next years and narrow enough to catch a unit slip (TFLOP/s
written into a FLOP/s field); unknown keys are refused with near matches. hw_profiles/SCHEMA.md
explains the fields.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from specsim.errors import ProfileError, shown
from specsim.hardware.inherited import inherited_tables
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.units import DTYPE_BYTES

ARCHS = (
    "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-consumer",
    "cdna2", "cdna3", "cdna4", "rdna3", "rdna3.5", "rdna4", "xe2", "cpu", "other",
)
KINDS = ("gpu", "cpu")

MAX_TEXT = 2_000  # characters of a name, title or note; sources may be longer
MAX_ALIASES = 64
MAX_KERNEL_TABLES = 500
MAX_KERNEL_PARAMS = 200


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric field: where the file keeps it, its range in `unit`, and what must hold."""

    field: str
    table: str
    key: str
    low: float
    high: float
    unit: str
    integer: bool = False
    required: bool = False


NUMBERS = (
    Number("sms", "device", "sms", 1, 2_000, "SMs, CUs or cores", integer=True, required=True),
    Number("l2_bytes", "device", "l2_bytes", 1e5, 5e9, "bytes", integer=True, required=True),
    Number("mem_bytes", "device", "mem_bytes", 1e9, 1e12, "bytes", integer=True, required=True),
    Number("mem_marketing_gb", "device", "mem_marketing_gb", 1, 1_000, "GB"),
    Number("power_w", "device", "power_w", 1, 10_000, "W"),
    Number("host_w", "device", "host_w", 0, 10_000, "W"),
    Number("gpus_per_node", "device", "gpus_per_node", 1, 1_024, "devices", integer=True),
    Number("mem_bytes_per_s", "peak", "mem_bytes_per_s", 1e9, 5e13, "bytes/s", required=True),
    Number("link_bytes_per_s", "link", "bytes_per_s", 1e8, 1e13, "bytes/s"),
    Number("bridge_bytes_per_s", "link", "bridge_bytes_per_s", 1e8, 1e13, "bytes/s"),
    Number("allreduce_latency_s", "link", "allreduce_latency_s", 1e-7, 1e-2, "s"),
)
# 0.1 GFLOP/s: one core that has to emulate 16-bit products.
FLOPS = Number("flops", "peak.flops", "", 1e8, 1e17, "FLOP/s")

_TEXTS = {
    "device": ("name", "title", "vendor", "arch", "kind", "mem_note"),
    "link": ("kind",),
}
_TABLES = ("device", "peak", "link", "sources", "kernels")
_KERNEL_TEXTS = ("source", "measured_on", "inherited_from")
_KERNEL_FLAGS = ("assumed", "replace")

# Ranges of kernel parameters by name, or by its ending (those that begin with "_"): what a kernel
# divides by or raises to is kept from where times have no end. Any other name is of a kernel that
# specsim does not know.
_PARAM_RANGES: tuple[tuple[tuple[str, ...], float, float, str], ...] = (
    (("_s",), 0.0, 10.0, "s"),
    (("_frac", "_eff", "mem", "compute"), 1e-4, 1.5, "of peak"),
    (("_traffic",), 0.0, 100.0, "of the bytes"),
    (("untiled", "tile_by_rows", "tail", "sag"), 0.0, 1.0, "(a share)"),
    (("link_gain",), -10.0, 10.0, "(dimensionless)"),
    (("rank_skew", "rank_power", "tile_power", "wide_power", "fill_penalty"), 0.0, 100.0,
     "(dimensionless)"),
    (("tile_rows", "max_splits"), 1.0, 1e4, "(a count)"),
    (("p", "p_floor"), 1.0, 100.0, "(an exponent)"),
    (("idle", "busy", "stream", "multiply"), 0.0, 100.0, "of the board's power limit"),
    (("spread", "pair_spread"), 0.0, 3.0, "(a standard deviation of ln)"),
    (("chain_gain", "crowded", "fill_power", "passes", "routing_shape", "unaligned"), 0.01, 100.0,
     "(dimensionless)"),
)
_FREE_RANGE = (-1e18, 1e18, "(dimensionless)")


def sourced_fields(profile: HardwareProfile) -> list[str]:
    """The fields of `profile` that need a source or an assumed mark."""
    names = [n.field for n in NUMBERS if _is_stated(profile, n.field)]
    return names + [f"flops.{dtype}" for dtype in profile.flops]


def _is_stated(profile: HardwareProfile, name: str) -> bool:
    if name == "mem_marketing_gb":  # the number in the device's own name
        return False
    if name in ("link_bytes_per_s", "allreduce_latency_s"):
        return profile.link_kind != "none"
    if name == "host_w":
        return profile.host_w > 0
    return getattr(profile, name) is not None


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """ProfileError for the first key that is not known, with near matches."""
    known = tuple(known)
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, n=3, cutoff=0.5)
            hint = f"near matches: {', '.join(near)}" if near else f"known: {', '.join(known)}"
            raise ProfileError(f"{where}: unknown key {shown(key)}; {hint}")


def check_number(origin: str, label: str, value: object, spec: Number) -> float | int:
    """`value` as a number inside the range of `spec`; ProfileError names field and range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(
            f"{origin}: {label} = {shown(value)} must be a number in {spec.unit}, "
            f"{spec.low:g} to {spec.high:g}"
        )
    if not spec.low <= value <= spec.high:  # also refuses nan, and never overflows on big ints
        raise ProfileError(
            f"{origin}: {label} = {shown(value)} is outside {spec.low:g} to {spec.high:g} "
            f"{spec.unit}{_slip_hint(value, spec)}"
        )
    if spec.integer:
        if value != int(value):
            raise ProfileError(
                f"{origin}: {label} = {shown(value)} must be a whole number of {spec.unit}"
            )
        return int(value)
    return float(value)


# A value that falls into the range after one of these factors was likely meant in that unit.
_SLIPS = {
    "FLOP/s": ((1e12, "TFLOP/s"), (1e15, "PFLOP/s"), (1e9, "GFLOP/s")),
    "bytes/s": ((1e9, "GB/s"), (1e12, "TB/s"), (1e6, "MB/s")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")),
    "s": ((1e-6, "microseconds"), (1e-3, "milliseconds")),
    "GB": ((1e-9, "bytes"), (1e-3, "MB")),
    "W": ((1e-3, "mW"), (1e3, "kW")),
}


def _slip_hint(value: float, spec: Number) -> str:
    for factor, unit in _SLIPS.get(spec.unit, ()):
        # Magnitudes only: a Python int from a file can be too long for a float.
        if abs(value) < 1e30 and spec.low <= value * factor <= spec.high:
            return f"; it looks like {unit}, write {value * factor:g} ({spec.unit})"
    return ""


def _text(origin: str, label: str, value: object) -> str:
    if not isinstance(value, str):
        raise ProfileError(f"{origin}: {label} = {shown(value)} must be a string")
    return value


def _line(origin: str, label: str, value: object) -> str:
    """A string that fits one line of a table or message: short and printable."""
    text = _text(origin, label, value)
    if len(text) > MAX_TEXT or not text.isprintable():
        raise ProfileError(
            f"{origin}: {label} = {shown(text)} must be one line of at most {MAX_TEXT} "
            "printable characters"
        )
    return text


def _choice(origin: str, label: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ProfileError(f"{origin}: {label} = {shown(value)} must be one of {', '.join(known)}")
    return value


def _table(origin: str, label: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ProfileError(f"{origin}: {label} must be a table ([{label}]), not {shown(value)}")
    return value


def profile_from_document(
    doc: Mapping[str, object],
    name: str,
    origin: str,
    inherited: HardwareProfile | None = None,
) -> HardwareProfile:
    """The profile a parsed TOML file describes.

    name: the file's stem, which `device.name` must repeat if it is given.
    origin: what messages call the file.
    inherited: the resolved profile named by [kernels] inherit (see `inherit_name`).
    Raises ProfileError for anything out of range, missing, unknown or of the wrong type.
    """
    refuse_unknown(origin, doc, _TABLES)
    tables = {label: _table(origin, label, doc.get(label, {})) for label in _TABLES}
    values: dict[str, Any] = {}
    for label in ("device", "peak", "link"):
        texts = _TEXTS.get(label, ())
        extra = {"device": ("aliases",), "peak": ("flops",)}.get(label, ())
        numbers = [n for n in NUMBERS if n.table == label]
        refuse_unknown(
            f"{origin}: [{label}]", tables[label], (*texts, *extra, *(n.key for n in numbers))
        )
        for key in texts:
            if key in tables[label]:
                target = "link_kind" if label == "link" else key
                values[target] = _line(origin, f"{label}.{key}", tables[label][key])
        for number in numbers:
            if number.key in tables[label]:
                raw = tables[label][number.key]
                values[number.field] = check_number(origin, number.field, raw, number)
            elif number.required:
                raise ProfileError(
                    f"{origin}: {number.field} is missing; write [{label}] {number.key} = ... "
                    f"in {number.unit}"
                )
    _check_names(values, name, origin)
    values["aliases"] = _aliases(origin, tables["device"].get("aliases", []))
    values["flops"] = _flops(origin, tables["peak"].get("flops"))
    _check_link(values, origin)
    values["kernels"] = _kernels(origin, tables["kernels"], inherited, values)
    sources, assumed = _sources(origin, tables["sources"], values["flops"])
    bare = HardwareProfile(**values, sources=sources, origin=origin)
    # A number without a source is an assumption, whether or not the file admits it.
    unsourced = {f for f in sourced_fields(bare) if f not in sources}
    return HardwareProfile(
        **values, sources=sources, assumed=frozenset(assumed | unsourced), origin=origin
    )


def _check_names(values: dict[str, Any], name: str, origin: str) -> None:
    stated = values.setdefault("name", name)
    if stated != name:
        raise ProfileError(
            f"{origin}: device.name = {shown(stated)} must equal the file's name {name!r}"
        )
    values.setdefault("title", name)
    values.setdefault("kind", "gpu")
    if "arch" not in values:
        raise ProfileError(
            f"{origin}: device.arch is missing; it must be one of {', '.join(ARCHS)}"
        )
    _choice(origin, "device.arch", values["arch"], ARCHS)
    _choice(origin, "device.kind", values["kind"], KINDS)


def _aliases(origin: str, raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_ALIASES:
        raise ProfileError(
            f"{origin}: device.aliases must be a list of at most {MAX_ALIASES} names"
        )
    return tuple(_line(origin, "device.aliases", item) for item in raw)


def _flops(origin: str, raw: object) -> dict[str, float]:
    table = _table(origin, "peak.flops", {} if raw is None else raw)
    if not table:
        raise ProfileError(
            f"{origin}: [peak.flops] is missing; give the dense peak per dtype in FLOP/s, "
            f"e.g. bf16 = 989e12 (dtypes: {', '.join(DTYPE_BYTES)})"
        )
    refuse_unknown(f"{origin}: [peak.flops]", table, DTYPE_BYTES)
    if "bf16" not in table:
        raise ProfileError(
            f"{origin}: [peak.flops] needs bf16, on which missing precisions fall back; a device "
            "without bf16 gives the rate of what it runs instead (fp16 or fp32) and says so"
        )
    return {d: float(check_number(origin, f"flops.{d}", v, FLOPS)) for d, v in table.items()}


def _check_link(values: dict[str, Any], origin: str) -> None:
    kind = values.get("link_kind", "none")
    stated = [f for f in ("link_bytes_per_s", "allreduce_latency_s") if f in values]
    if kind == "none" and stated:
        raise ProfileError(
            f"{origin}: {stated[0]} is given but the link has no kind; write [link] kind = "
            '"NVLink 4", "PCIe 5.0 x16" or what it is'
        )
    if kind != "none" and len(stated) < 2:
        raise ProfileError(
            f"{origin}: [link] kind = {shown(kind)} needs bytes_per_s (per direction) and "
            "allreduce_latency_s"
        )


def _sources(
    origin: str, table: Mapping[str, object], flops: Mapping[str, float]
) -> tuple[dict[str, str], set[str]]:
    known = [n.field for n in NUMBERS] + [f"flops.{dtype}" for dtype in flops]
    refuse_unknown(f"{origin}: [sources]", table, (*known, "assumed"))
    sources = {k: _text(origin, f"sources.{k}", v) for k, v in table.items() if k != "assumed"}
    assumed = table.get("assumed", [])
    if not isinstance(assumed, list) or not all(isinstance(item, str) for item in assumed):
        raise ProfileError(f"{origin}: sources.assumed must be a list of field names")
    refuse_unknown(f"{origin}: sources.assumed", assumed, known)
    return sources, set(assumed)


def inherit_name(doc: Mapping[str, object], origin: str) -> str | None:
    """The profile named by [kernels] inherit, None when the file has none."""
    kernels = _table(origin, "kernels", doc.get("kernels", {}))
    if "inherit" not in kernels:
        return None
    name = _text(origin, "kernels.inherit", kernels["inherit"])
    if not name or "/" in name or "\\" in name:
        raise ProfileError(
            f"{origin}: kernels.inherit = {shown(name)} must be the name of a profile, not a path"
        )
    return name


def _kernels(
    origin: str, table: Mapping[str, object], inherited: HardwareProfile | None,
    values: Mapping[str, Any],
) -> dict[str, KernelTable]:
    tables: dict[str, KernelTable] = {}
    if inherited is not None:
        tables = inherited_tables(
            inherited, values["arch"], values.get("sms", 0), values["flops"]
        )
    own = {k: v for k, v in table.items() if k != "inherit"}
    if len(own) > MAX_KERNEL_TABLES:
        raise ProfileError(f"{origin}: {len(own)} kernel tables; at most {MAX_KERNEL_TABLES}")
    if inherited is not None:
        alike = inherited.arch == values["arch"]
        tables = {n: t for n, t in tables.items() if _kept(n, own, alike)}
    for name, raw in own.items():
        label = f'kernels."{_line(origin, "kernel table name", name)}"'
        tables[name] = _kernel(origin, label, name, _table(origin, label, raw), tables.get(name))
    return tables


def _kept(name: str, own: Mapping[str, object], alike: bool) -> bool:
    """Whether an inherited table stands beside the device's own: what was measured on this device
    goes before another device's kernels of one engine, but not before the engine's kernels on the
    same architecture, unless links made them what they are."""
    family, engine, _ = name.partition("@")
    if not engine or family not in own:
        return True
    return alike and not family.startswith("all_reduce")


def _kernel(
    origin: str, label: str, name: str, raw: Mapping[str, object], base: KernelTable | None
) -> KernelTable:
    """One own table; parameters it leaves out come from `base` unless it says replace = true."""
    reserved = (*_KERNEL_TEXTS, *_KERNEL_FLAGS)
    texts = {k: _text(origin, f"{label}.{k}", raw[k]) for k in _KERNEL_TEXTS if k in raw}
    for flag in _KERNEL_FLAGS:
        if not isinstance(raw.get(flag, False), bool):
            raise ProfileError(f"{origin}: {label}.{flag} must be true or false")
    params = {k: _param(origin, label, k, v) for k, v in raw.items() if k not in reserved}
    if not params:
        raise ProfileError(f"{origin}: {label} holds no parameters; give at least one number")
    if len(params) > MAX_KERNEL_PARAMS:
        raise ProfileError(
            f"{origin}: {label} has {len(params)} parameters; at most {MAX_KERNEL_PARAMS}"
        )
    own = KernelTable(
        name,
        params,
        texts.get("source", ""),
        texts.get("measured_on"),
        # No source means nobody vouches for the numbers.
        assumed=bool(raw.get("assumed", not texts.get("source"))),
        inherited_from=texts.get("inherited_from"),
    )
    kept = () if base is None or raw.get("replace") else tuple(set(base.params) - set(params))
    if base is None or not kept:
        return own
    named = ", ".join(sorted(params))
    return KernelTable(
        name,
        {**base.params, **params},
        f"{named}: {own.source or 'no source'}; the rest: {base.source or 'no source'}",
        f"{named}: {own.measured_on}; the rest: {base.measured_on or 'nothing'}"
        if own.measured_on
        else base.measured_on,
        assumed=True,
        inherited_from=base.inherited_from,
    )


def _param(origin: str, label: str, key: str, value: object) -> float:
    _line(origin, f"a parameter name of {label}", key)
    low, high, unit = _FREE_RANGE
    for names, least, most, kind in _PARAM_RANGES:
        if key in names or key.endswith(tuple(name for name in names if name.startswith("_"))):
            low, high, unit = least, most, kind
            break
    spec = Number(key, label, key, low, high, unit)
    return float(check_number(origin, f"{label}.{key}", value, spec))
