"""Near options for a name that is none: first those that mean what the word says, then those that
are spelt like it."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specsim.options.declare import Declared

MAX_MEANING = 60  # characters

# Options, and the words by which other tools and papers know what they say; a word may stand with
# several, of which a command has some.
_WORDS: dict[str, str] = {
    "concurrency": "batch-size batch bs batch-sizes clients num-clients streams connections "
                   "parallel num-concurrent users num-users",
    "max_num_seqs": "max-batch-size max-batch slots request-slots cuda-graph-max-bs batch-size "
                    "max-concurrent-requests num-seqs",
    "max_num_batched_tokens": "chunk-size token-budget max-tokens-per-step max-num-tokens "
                              "max-prefill-tokens",
    "tp": "num-gpus gpus gpu-count ngpus n-gpus num-devices devices world-size tensor-parallel",
    "tps": "tp num-gpus gpus gpu-count tensor-parallel-size tensor-parallel",
    "pp": "pipeline-parallel pipeline-stages",
    "ep": "expert-parallel enable-expert-parallel moe-ep-size",
    "attention_dp": "data-parallel-size dp dp-size enable-dp-attention dp-attention",
    "replicas": "data-parallel-size dp dp-size num-replicas instances nodes num-nodes",
    "contexts": "context-length context context-lengths input-lens isl",
    "input_len": "context-length context context-size ctx ctx-size seq-len sequence-length "
                 "max-seq-len prompt-len prompt-length prompt-tokens input-tokens input-length "
                 "max-input-len random-input",
    "max_model_len": "context-length max-seq-len max-context max-sequence-length",
    "output_len": "max-tokens max-new-tokens gen-len generation-length output-tokens "
                  "output-length max-output-len decode-len num-tokens random-output",
    "requests": "num-requests n-requests request-count number-of-requests",
    "rate": "qps rps requests-per-second arrival-rate throughput lambda",
    "duration": "time seconds run-time sim-time",
    "k": "draft-length draft-len num-draft-tokens draft-tokens gamma lookahead spec-tokens "
         "num-spec-tokens speculative-num-steps speculative-num-draft-tokens num-steps",
    "ks": "k draft-lengths num-speculative-tokens",
    "draft": "draft-model drafter assistant assistant-model speculative-model spec-model "
             "speculative-draft-model speculator",
    "method": "speculative-algorithm speculative-algo algorithm speculative-method spec-method "
              "spec speculation",
    "tree": "speculative-eagle-topk topk eagle-topk",
    "weights": "dtype precision quant quantize weight-format weight-dtype weight-quantization bits",
    "kv": "kv-dtype kv-cache cache-dtype kv-quant kv-format kv-cache-quantization",
    "gpu": "device hardware hw gpu-type gpu-name accelerator",
    "engine": "backend server framework runtime serving-engine inference-engine",
    "gpu_memory_utilization": "memory-fraction gpu-mem-util mem-util gpu-memory",
    "acceptance_length": "accept-length mean-acceptance-length tau tokens-per-step",
    "acceptance_rate": "alpha accept-rate acceptance-probability beta",
    "acceptance": "acceptance-rates per-position-acceptance accept-rates",
    "cached_share": "hit-rate cache-hit-rate prefix-cache-hit-rate prefix-hit-rate",
    "slo": "sla goodput ttft-slo tpot-slo max-latency objectives",
    "stream_floor": "min-speed min-tok-s tpot-slo",
    "price_per_gpu_hour": "price cost gpu-cost gpu-price",
    "seed": "random-seed rng-seed",
    "profiles": "profile-dir hardware-dir",
    "model": "model model-path model-name model-id model-tag served-model-name",
    "json_out": "output-format format output-json",
}


def near(word: str, known: Mapping[str, "Declared"], most: int = 2) -> "list[Declared]":
    """Up to `most` options of `known` that `word`, with or without its dashes, may mean."""
    plain = _plain(word)
    meant = [known[name] for name, words in _WORDS.items()
             if name in known and plain in map(_plain, words.split())]
    if meant:
        return meant[:most]
    spelt: dict[str, Declared] = {}
    for item in known.values():
        for text in (item.name, *item.on, *item.off):
            spelt.setdefault(text.lstrip("-").replace("_", "-"), item)
    close = get_close_matches(word.lstrip("-").replace("_", "-"), list(spelt), n=most)
    return list({id(spelt[text]): spelt[text] for text in close}.values())


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


def hint(word: str, known: Mapping[str, "Declared"], most: int = 2) -> str:
    """'did you mean 'concurrency'? ' for what files and Python callers name; '' where none is
    near."""
    names = [repr(item.name) for item in near(word, known, most)]
    return f"did you mean {' or '.join(names)}? " if names else ""


def flag_hint(word: str, known: Mapping[str, "Declared"]) -> str:
    """The same for a command line: the flags, with what the first of them means."""
    found = near(word, known)
    if not found:
        return ""
    first = found[0]
    if first.option.argument:
        return f"{first.flag} stands by place, without a flag"
    others = "".join(f" or {item.flag}" for item in found[1:])
    meaning = re.split(r"\.(?: |$)(?=[A-Z]|$)", first.option.help)[0]
    if len(meaning) > MAX_MEANING:
        meaning = meaning.partition(":")[0]
    return f"did you mean {first.flag} ({meaning}){others}?"
