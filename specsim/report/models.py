"""One model in full, as a dict for JSON and as text."""

from typing import Any

from specsim.model.counts import (
    active_parameters,
    drafter_parameters,
    drafter_pass_bytes,
    kv_bytes_per_token,
    parameters,
    state_bytes,
    weight_bytes,
)
from specsim.model.spec import ModelSpec
from specsim.report.tables import size, table


def model_dict(spec: ModelSpec) -> dict[str, Any]:
    """Counts and bytes of a model, JSON-ready."""
    counted, stored = parameters(spec), weight_bytes(spec)
    kv = kv_bytes_per_token(spec)
    active = active_parameters(spec)
    out: dict[str, Any] = {
        "name": spec.name,
        "family": spec.family,
        "weights": spec.weights,
        "layers": spec.n_layers,
        "hidden": spec.hidden,
        "vocab": spec.vocab,
        "parameters_text": counted.text,
        "parameters_total": counted.total,
        "active_parameters": active.total,
        "weight_bytes": stored.total,
        "kv_dtype": spec.default_kv_dtype,
        "kv_bytes_per_token": kv.full + kv.index,
        "kv_sliding": [{"window": w, "bytes_per_token": b} for w, b in kv.sliding],
        "state_bytes_per_sequence": state_bytes(spec).total,
        "max_position": spec.max_position,
        "source": spec.source,
        "notes": list(spec.notes),
        "mtp": None,
    }
    if spec.mtp is not None:
        out["mtp"] = {
            "name": spec.mtp.name,
            "n_predict": spec.mtp.n_predict,
            "parameters": drafter_parameters(spec.mtp),
            "bytes_per_pass": drafter_pass_bytes(spec.mtp),
        }
    return out


def model_text(shown: dict[str, Any]) -> str:
    """The dict of `model_dict` as aligned lines."""
    rows = [
        ["family", shown["family"]],
        ["weights", f"{shown['weights']}, {size(shown['weight_bytes'])}"],
        ["layers", f"{shown['layers']}, width {shown['hidden']}, vocabulary {shown['vocab']}"],
        ["parameters", f"{shown['parameters_text']:,} text, {shown['parameters_total']:,} in all"],
        ["active per token", f"{shown['active_parameters']:,}, input table counted"],
        ["cache", f"{shown['kv_bytes_per_token']:,.0f} B per token ({shown['kv_dtype']})"],
    ]
    for item in shown["kv_sliding"]:
        rows.append(
            ["", f"+ {item['bytes_per_token']:,.0f} B per token up to {item['window']} tokens"]
        )
    if shown["state_bytes_per_sequence"]:
        rows.append(["state", f"{size(shown['state_bytes_per_sequence'])} per sequence"])
    if shown["mtp"]:
        mtp = shown["mtp"]
        rows.append(
            [
                "MTP head",
                f"{mtp['n_predict']} layer(s), {mtp['parameters']:,} parameters, "
                f"{size(mtp['bytes_per_pass'])} per pass with the output head",
            ]
        )
    rows.append(["source", shown["source"]])
    rows += [["note", note] for note in shown["notes"]]
    return table([shown["name"], ""], rows, left=2)
