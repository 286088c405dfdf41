"""One OpenAI-style response of a vLLM server run with --per-request-spec-decode-metrics.

`metrics.speculative_decoding` counts drafts of this request by their accepted tokens, the exact
acceptance of one request. Steps without a draft are not in it; what a step yields follows from
the token count of `usage`. There are no times worth reading (the server leaves them null).
"""

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import Count, Foreign, Text, as_mapping, key, part, stated
from specsim.formats.bench.record import BenchLoad, BenchRun, ServerArgs
from specsim.formats.bench.shapes import DraftCounts
from specsim.formats.bench.stats import with_derived

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
    return [
        with_derived(
            BenchRun(
                source=document.origin,
                format=NAME,
                **stated(item),
                engine="vllm",
                engine_version=_version(item.system_fingerprint),
                load=BenchLoad(num_prompts=1),
                completed=1,
                acceptance=item.drafts.acceptance(document.origin),
                server_args=ServerArgs(num_speculative_tokens=item.drafts.num_spec_tokens),
                warnings=("one response: acceptance of one request, no times",),
            )
        )
        for _, item in document.read(VllmResponse)
    ]


def _version(fingerprint: str | None) -> str | None:
    """ "vllm-0.32.0-bfb74c5d" -> "0.32.0"."""
    parts = (fingerprint or "").split("-")
    return parts[1] if len(parts) >= 2 and parts[0] == "vllm" else None
