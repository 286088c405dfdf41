"""What results of all kinds say about what was deployed: in their first lines, in the heading of a
page, and in the list of settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.methods.registry import is_plain
from specsim.report.blocks import Terms
from specsim.report.doc import Doc
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.analytic.system import System

_SETTINGS = {
    "weights": "weights", "kv_dtype": "KV cache", "tp": "tensor parallel",
    "pp": "pipeline stages",
    "ep": "expert parallel", "attention_dp": "attention groups", "engine": "engine profile",
    "engine_version": "engine version", "method": "method", "draft": "drafter",
    "k": "draft tokens per step (k)", "input_len": "prompt tokens",
    "output_len": "output tokens", "fidelity": "fidelity", "easiness": "acceptance spread",
}


def live(system: "System") -> dict[str, object]:
    """What a live result says beside its JSON, under the key `live`: the deployment with the titles
    of GPU and engine, where its acceptance is from."""
    return {
        "deployed": (
            f"{system.spec.name} ({system.spec.weights} weights, {system.kv_dtype} cache) on "
            f"{system.parallel.all_gpus} x {system.profile.title or system.profile.name}, "
            f"{system.engine.described}"
        ),
        "source": system.acceptance.source if system.acceptance else "",
    }


def deployed(doc: Doc) -> str:
    """The deployment; from a result's JSON alone with names instead of titles."""
    return doc.text("live.deployed", "") or (
        f"{doc.text('model')} ({doc.text('weights', '-')} weights, {doc.text('kv_dtype', '-')} "
        f"cache) on {gpus_of(doc)} x {doc.text('gpu', '-')}, {engine_of(doc)}"
    )


def apart(doc: Doc) -> str:
    """', prompts on 2 (tp 4) and decoding on 1 replica' where they are apart, else nothing."""
    found = doc.at("apart")
    if not found.has("prefill_replicas"):
        return ""
    return (
        f", prompts on {found.words('prefill_replicas')} (tp {found.words('prefill_tp')}) and "
        f"decoding on {counted(found.number('decode_replicas'), 'replica')}"
    )


def engine_of(doc: Doc) -> str:
    return f"{doc.text('engine', 'an engine')} {doc.text('engine_version', '')}".strip()


def written_for(doc: Doc) -> str:
    """', vLLM 0.25.1' of what holds a command, to end what stands in front of it."""
    return f", {doc.text('written_for')}" if doc.has("written_for") else ""


def gpus_of(doc: Doc) -> int:
    """GPUs of a deployment: tensor parallel times attention groups times pipeline stages."""
    return int(
        (doc.maybe("tp") or 1) * (doc.maybe("attention_dp") or 1) * (doc.maybe("pp") or 1)
    )


def all_gpus_of(doc: Doc) -> int:
    """GPUs of all replicas, where some compute prompts for others."""
    each, found = gpus_of(doc), doc.at("apart")
    if not found.has("prefill_replicas"):
        return each
    prefill = each * found.number("prefill_tp") / (doc.maybe("tp") or 1)
    return int(
        found.number("prefill_replicas") * prefill + found.number("decode_replicas") * each
    )


def speculative(doc: Doc) -> bool:
    k = doc.maybe("k")
    return not is_plain(doc.text("method", "none")) and (k is None or k > 0)


def drafting(doc: Doc) -> str:
    """How it drafts, with the acceptance length and where that is from."""
    length = doc.maybe("acceptance_length")
    if not speculative(doc) or length is None:
        return "no speculation"
    drafter = f", drafter {doc.text('draft')}" if doc.has("draft") else ""
    told = doc.text("live.source", "") or doc.text("acceptance.source", "")
    share = doc.maybe("acceptance.draft_probability") if doc.has("acceptance") else None
    if share is not None and share < 1:
        shown = (f"{length:.2f} in the {share:.0%} of steps that have a draft, "
                    f"{1 + share * (length - 1):.2f} tokens per step over all")
    else:
        shown = f"{length:.2f}"
    return (
        f"{doc.text('method')}, k = {doc.words('k')}{drafter}: acceptance length {shown}"
        + (f" ({told})" if told else "")
    )


def title_of(doc: Doc) -> str:
    """'Qwen3.6-27B-FP8 on 2 x h200-sxm, vllm 0.25.1, mtp with k = 3'."""
    count = gpus_of(doc)
    on = f"{f'{count} x ' if count > 1 else ''}{doc.text('gpu', 'an unnamed GPU')}"
    words = [f"{doc.text('model')} on {on}", engine_of(doc)]
    if speculative(doc):
        k = f" with k = {doc.words('k')}" if doc.has("k") else ""
        words.append(doc.text("method") + k)
    elif doc.has("method"):
        words.append("no speculation")
    return ", ".join(words)


def settings(doc: Doc, more: Sequence[tuple[str, str]] = ()) -> Terms:
    """The settings behind a result, and how the acceptance is known."""
    items = [(label, doc.words(key)) for key, label in _SETTINGS.items() if doc.has(key)]
    if doc.has("acceptance.source"):
        items.append(("acceptance", doc.text("acceptance.source")))
    if doc.has("acceptance") and doc.flag("acceptance.extrapolated"):
        known = doc.words("acceptance.measured_positions")
        items.append(("extrapolated", f"positions after {known} are continued, not measured"))
    return Terms("Assumptions and their sources", [*items, *more])
