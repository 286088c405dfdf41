"""One cell of InferenceMAX (now InferenceX): what its script makes of a `vllm bench serve` result.

Times lose their unit and are seconds (`median_ttft`); throughputs are per GPU; `intvty` is
1 / TPOT. The GPUs are `tp`, or num_decode_gpu where prefill and decode have their own. isl and osl
are the lengths asked for; requests of the load are a little shorter.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Count,
    Foreign,
    Number,
    Text,
    named_stat,
    read_as,
    simple_text,
    stat_names,
)
from specsim.formats.bench.record import BenchLoad, BenchRun, ServerArgs
from specsim.formats.bench.stats import with_derived

NAME = "InferenceMAX"
_TIMES = ("ttft", "tpot", "itl", "e2el")
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "trtllm", "trtllm": "trtllm",
            "dynamo-sglang": "sglang", "dynamo-trt": "trtllm", "dynamo-vllm": "vllm"}
_KEPT = ("hw", "framework", "precision", "ep", "dp_attention", "isl", "osl", "spec_decoding",
         "disagg", "is_multinode", "image", "num_prefill_gpu", "num_decode_gpu", "prefill_tp",
         "prefill_ep", "decode_tp", "decode_ep", "tput_per_gpu", "input_tput_per_gpu")


class InferenceMaxCell(Foreign):
    by_name: ClassVar = (stat_names(*_TIMES), "|".join(_KEPT))

    model: Text = None
    framework: Text = None
    spec_decoding: object = None
    conc: Count = None
    tp: Count = None
    num_decode_gpu: Count = None
    isl: Number = None
    osl: Number = None
    output_tput_per_gpu: Number = None


def matches(document: ResultFile) -> bool:
    return {"tput_per_gpu", "conc"} <= document.first.keys()


def read(document: ResultFile) -> list[BenchRun]:
    return [_run(raw, where, document.origin) for where, raw in document.objects()]


def _run(raw: Mapping[str, object], where: str, origin: str) -> BenchRun:
    item = read_as(InferenceMaxCell, raw, where)
    gpus, rate = item.num_decode_gpu or item.tp, item.output_tput_per_gpu
    times: dict[str, Any] = {f"{name}_s": named_stat(raw, name, where) for name in _TIMES}
    method = item.spec_decoding if isinstance(item.spec_decoding, str) else None
    return with_derived(BenchRun(
        source=origin, format=NAME, engine=_ENGINES.get(item.framework or ""), model=item.model,
        load=BenchLoad(float("inf"), item.conc), input_tokens_mean=item.isl,
        output_tokens_mean=item.osl,
        output_tok_s=rate * gpus if rate is not None and gpus else None, **times,
        server_args=ServerArgs(method=method and method[:200], tp=item.tp),
        metadata={
            name: text for name in _KEPT if (text := simple_text(raw.get(name))) is not None
        },
        warnings=(
            "lengths are those asked for; the throughput is that of a GPU times its GPUs",
        ),
    ))
