"""OpenAI-style responses of a vLLM server run with --per-request-spec-decode-metrics.

`metrics.speculative_decoding` counts drafts of one request by their accepted tokens (`summary`),
and lists every step (`detailed`). Steps without a draft are not in it; what a step yields follows
from the token count of `usage`. There are no times worth reading (the server leaves them null).
One response a file, or one a line: these are pooled into one run.
"""


from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import Count, Foreign, Text, as_mapping, key, part
from specsim.formats.bench.record import BenchLoad, BenchRun, ServerArgs
from specsim.formats.bench.shapes import DraftCounts, pooled
from specsim.formats.bench.stats import sum_of_all, with_derived

NAME = "vllm response"


class VllmResponse(Foreign):
    model: Text = None
    system_fingerprint: Text = None
    input_tokens: Count = key("usage.prompt_tokens")
    output_tokens: Count = key("usage.completion_tokens")
    drafts: DraftCounts = part(DraftCounts, "metrics.speculative_decoding")


def matches(document: ResultFile) -> bool:
    first = document.first
    metrics = as_mapping(first.get("metrics"))
    return isinstance(first.get("choices"), list) and "speculative_decoding" in metrics


def read(document: ResultFile) -> list[BenchRun]:
    items = [item for _, item in document.read(VllmResponse)]
    count, drafts = len(items), pooled(item.drafts for item in items)
    what = "one response: acceptance of one request" if count == 1 else f"{count} responses"
    run = BenchRun(
        source=document.origin, format=NAME, model=items[0].model, engine="vllm",
        engine_version=_version(items[0].system_fingerprint), load=BenchLoad(num_prompts=count),
        completed=count, input_tokens=sum_of_all(item.input_tokens for item in items),
        output_tokens=sum_of_all(item.output_tokens for item in items),
        acceptance=drafts.acceptance(document.origin),
        server_args=ServerArgs(num_speculative_tokens=drafts.num_spec_tokens),
        warnings=(f"{what}, no times",),
    )
    return [with_derived(run)]


def _version(fingerprint: str | None) -> str | None:
    """ "vllm-0.32.0-bfb74c5d" -> "0.32.0"."""
    parts = (fingerprint or "").split("-")
    return parts[1] if len(parts) >= 2 and parts[0] == "vllm" else None
