"""One OpenAI-style response of a vLLM server run with --per-request-spec-decode-metrics.

`metrics.speculative_decoding` counts drafts of this request by their accepted tokens, the exact
acceptance of one request. Steps without a draft are not in it; what a step yields follows from
the token count of `usage`. There are no times worth reading (the server leaves them null).
"""

from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import BenchRun, Load, ServerArgs
from specsim.formats.bench.stats import acceptance_from_counts, survival, with_step_yield

NAME = "vllm response"


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    if not isinstance(first, dict) or not isinstance(first.get("choices"), list):
        return False
    metrics = first.get("metrics")
    return isinstance(metrics, dict) and "speculative_decoding" in metrics


def read(document: Document) -> list[BenchRun]:
    return [_run(item, document.origin) for item in document.objects()]


def _run(item: Fields, origin: str) -> BenchRun:
    spec, usage = item.child("metrics").child("speculative_decoding"), item.child("usage")
    histogram = spec.counts("acceptance_histogram") or ()
    output = usage.count("completion_tokens")
    run = BenchRun(
        source=origin,
        format=NAME,
        engine="vllm",
        engine_version=_version(item.text("system_fingerprint")),
        model=item.text("model"),
        load=Load(num_prompts=1),
        completed=1,
        input_tokens=usage.count("prompt_tokens"),
        output_tokens=output,
        input_tokens_mean=usage.number("prompt_tokens"),
        output_tokens_mean=usage.number("completion_tokens"),
        acceptance=acceptance_from_counts(
            spec.count("num_spec_steps"),
            spec.count("num_draft_tokens"),
            spec.count("num_accepted_draft_tokens"),
            survival(histogram),
        ),
        server_args=ServerArgs(num_speculative_tokens=spec.count("num_spec_tokens")),
        warnings=("one response: acceptance of one request, no times",),
    )
    return with_step_yield(run)


def _version(fingerprint: str | None) -> str | None:
    """ "vllm-0.32.0-bfb74c5d" -> "0.32.0"."""
    parts = (fingerprint or "").split("-")
    return parts[1] if len(parts) >= 2 and parts[0] == "vllm" else None
