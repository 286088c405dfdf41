"""What is known, as tables: models, one of them in full, hardware profiles with their sources."""

from collections.abc import Mapping, Sequence

from specsim.hardware.profile import HardwareProfile
from specsim.jsonable import picked
from specsim.latency.power import Power
from specsim.model.catalogue import CatalogueEntry
from specsim.model.counts import (
    active_parameters,
    kv_bytes_per_token,
    parameters,
    state_bytes,
    weight_bytes,
)
from specsim.model.drafter_counts import drafter_parameters, drafter_pass_bytes
from specsim.model.spec import ModelSpec
from specsim.report.blocks import Lines, Section
from specsim.report.doc import Doc
from specsim.report.tables import Table
from specsim.units import counted, size

LEGEND = (
    "size, active: billions of parameters, of all and of what a token passes through (without the "
    "input table); MTP: has such a head"
)


def model_dict(spec: ModelSpec) -> dict[str, object]:
    """Counts and bytes of a model, JSON-ready."""
    counted, kv, mtp = parameters(spec), kv_bytes_per_token(spec), spec.mtp
    return {
        **picked(spec, "name family weights layers=n_layers hidden vocab"),
        "parameters_text": counted.text,
        "parameters_total": counted.total,
        "active_parameters": active_parameters(spec).total,
        "weight_bytes": weight_bytes(spec).total,
        "kv_dtype": spec.default_kv_dtype,
        "kv_bytes_per_token": kv.full + kv.index,
        "kv_sliding": [{"window": w, "bytes_per_token": b} for w, b in kv.sliding],
        "state_bytes_per_sequence": state_bytes(spec).total,
        **picked(spec, "max_position source notes"),
        "mtp": None if mtp is None else {
            **picked(mtp, "name n_predict"),
            "parameters": drafter_parameters(mtp),
            "bytes_per_pass": drafter_pass_bytes(mtp),
        },
    }


def models_section(entries: Sequence[CatalogueEntry], drafters: bool) -> Section:
    """The list of bundled models, or of drafters."""
    if drafters:
        rows = [[entry.name, entry.kind, f"{entry.parameters / 1e9:.3g}",
                 ", ".join(entry.targets) or "-"] for entry in entries]
        return Section("", "", [
            Table(["drafter", "kind", "size", "for"], rows, left=2, units=["", "", "B", ""])])
    rows = [
        [
            entry.name,
            entry.weights,
            f"{entry.parameters / 1e9:.4g}",
            f"{entry.active_parameters / 1e9:.3g}",
            "yes" if entry.has_mtp else "-",
            entry.family,
            ", ".join(entry.drafters) or "-",
        ]
        for entry in entries
    ]
    headers = ["model", "weights", "size", "active", "MTP", "family", "drafters"]
    units = ["", "", "B", "B", "", "", ""]
    return Section("", "", [Table(headers, rows, units=units, detail=2), Lines([LEGEND])])


def model_section(shown: Mapping[str, object]) -> Section:
    """The dict of `model_dict` as a table, and one of its drafters."""
    doc = Doc(shown)
    state, mtp = doc.maybe("state_bytes_per_sequence"), doc.at("mtp")
    rows = [
        ["family", doc.text("family")],
        ["weights", f"{doc.text('weights')}, {size(doc.number('weight_bytes'))}"],
        ["layers", f"{doc.words('layers')}, width {doc.words('hidden')}, vocabulary "
                   f"{doc.words('vocab')}"],
        ["parameters", f"{doc.number('parameters_text'):,} text, "
                       f"{doc.number('parameters_total'):,} in all"],
        ["active per token", f"{doc.number('active_parameters'):,}, input table counted"],
        ["cache", f"{doc.number('kv_bytes_per_token'):,.0f} B per token ({doc.text('kv_dtype')})"],
        *(["", f"+ {item.number('bytes_per_token'):,.0f} B per token up to {item.words('window')} "
               "tokens"] for item in doc.items("kv_sliding")),
    ]
    if state:
        rows.append(["state", f"{size(state)} per sequence"])
    if mtp.has(""):
        rows.append(["MTP head", f"{counted(mtp.number('n_predict'), 'layer')}, "
                     f"{mtp.number('parameters'):,} parameters, "
                     f"{size(mtp.number('bytes_per_pass'))} per pass with the output head"])
    rows.append(["source", doc.text("source")])
    rows += [["note", note] for note in doc.texts("notes")]
    drafters = doc.items("drafters")
    return Section("", "", [
        Table([doc.text("name"), ""], rows, 2), _drafters(drafters) if drafters else None])


def _drafters(drafters: Sequence[Doc]) -> Table:
    """What can draft for the model, and what is known of it."""
    lines = []
    for item in drafters:
        tokens = "-"
        if item.has("tokens_per_step"):
            low, high = item.pair("tokens_90") or (0.0, 0.0)
            tokens = f"{item.number('tokens_per_step'):.2f} ({low:.2f} to {high:.2f})"
        lines.append([
            item.text("method"), item.text("repository", "") or item.text("drafter"),
            item.words("k") if item.has("k") else "-", tokens, item.text("level"),
            item.words("rows"),
        ])
    return Table(["method", "drafter", "k", "tokens/step (90%)", "known from", "rows"], lines, 2)


_LEGEND = (
    "memory: GB, billions of bytes, all that the driver shows (151 for a card sold as 141 GB)",
    "bf16, fp8: dense peaks; link: one direction",
    "kernels: whether efficiencies were measured on the device itself; partly: some, the others "
    "(or their shape) are another device's",
)


def profiles_section(profiles: Sequence[HardwareProfile]) -> Section:
    """The list of devices."""
    headers = ["gpu", "memory", "bandwidth", "bf16", "fp8", "link", "kernels", "SMs"]
    units = ["", "GB", "TB/s", "TFLOP/s", "TFLOP/s", "GB/s", "", ""]
    return Section("", "", [
        Table(headers, [_row(profile) for profile in profiles], units=units, detail=1),
        Lines(_LEGEND),
    ])


def _scaled(value: float | None, factor: float, digits: str) -> str:
    return f"{value / factor:{digits}}" if value else "-"


def _row(profile: HardwareProfile) -> list[str]:
    """One line of the list: GB, TB/s, TFLOP/s, link GB/s, how the kernels are known, SMs."""
    return [
        profile.name,
        _scaled(profile.mem_bytes, 1e9, ".0f"),
        _scaled(profile.mem_bytes_per_s, 1e12, ".3g"),
        _scaled(profile.flops.get("bf16"), 1e12, ".4g"),
        _scaled(profile.flops.get("fp8"), 1e12, ".4g"),
        _scaled(profile.link_bytes_per_s, 1e9, ".0f"),
        profile.kernels_known,
        str(profile.sms),
    ]


def profile_section(profile: HardwareProfile) -> Section:
    """Every peak with its source, then the kernel tables."""
    return Section("", "", [
        Lines([profile.title]),
        Table(["field", "value", "source"], profile_values(profile), left=3),
        kernel_table(profile) if profile.kernels else None,
    ])


def profile_values(profile: HardwareProfile) -> list[list[str]]:
    """Rows of (field, value, where it is from)."""
    values = {
        "mem_bytes": f"{profile.mem_bytes / 1e9:.2f} GB ({profile.mem_note})",
        "mem_bytes_per_s": f"{profile.mem_bytes_per_s / 1e12:.4g} TB/s",
        **{f"flops.{k}": f"{v / 1e12:.4g} TFLOP/s dense" for k, v in profile.flops.items()},
        "sms": str(profile.sms),
        "l2_bytes": f"{profile.l2_bytes / 1e6:.0f} MB",
        "link_bytes_per_s": f"{profile.link_bytes_per_s / 1e9:.0f} GB/s ({profile.link_kind})",
        "allreduce_latency_s": f"{profile.allreduce_latency_s * 1e6:.1f} us",
        "gpus_per_node": str(profile.gpus_per_node),
        **({} if profile.bridge_bytes_per_s is None else {
            "bridge_bytes_per_s": f"{profile.bridge_bytes_per_s / 1e9:.4g} GB/s (NVLink, a pair)"
        }),
        "power_w": "-" if profile.power_w is None else f"{profile.power_w:.0f} W",
        **({} if (power := Power.of(profile)) is None else {
            "power": f"of power_w: idle {power.idle:.0%}, in kernels {power.busy:.0%}, memory at "
                     f"its peak +{power.stream:.0%}, arithmetic at its peak +{power.multiply:.0%}"
        }),
    }
    return [
        [name, value,
         ("assumed: " if profile.is_assumed(name) else "") + profile.sources.get(name, "")]
        for name, value in values.items()
    ]


def kernel_table(profile: HardwareProfile) -> Table:
    """The kernel tables, and how each is known."""
    rows = [
        [table.name, "assumed" if table.assumed else "measured", table.inherited_from or "",
         table.source]
        for table in profile.kernels.values()
    ]
    return Table(["kernel table", "", "from", "source"], rows, left=4)
