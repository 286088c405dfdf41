"""The decoder as a command line describes it: model, drafter, threads. Used by `specsim generate`
and `specsim serve`.

--draft names a method (none, ngram, suffix, early-exit; head: the trained EAGLE-style head that
ships for the model) or a drafter: the file of a head (*.safetensors), or a draft model (a name, a
folder, a .gguf file; the target's own name drafts with the target itself).
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.errors import UsageError, closest

if TYPE_CHECKING:
    from specsim.decoder.drafters.eagle import EagleWeights
    from specsim.decoder.models import LoadedModel
    from specsim.decoder.options import DecoderOptions
    from specsim.decoder.tokenizer import Tokenizer
    from specsim.decoder.transformer import Transformer

# n-gram, head, draft model: the fastest of the draft lengths measured at batch 1 on two CPU cores
# (SmolLM2-135M; Qwen2.5-Coder 1.5B with the 0.5B). Suffix follows n-gram, early-exit the head.
DEFAULT_K = {"ngram": 6, "suffix": 6, "draft_model": 3, "eagle": 2, "early_exit": 2}
_PLAIN_METHODS = ("none", "ngram", "suffix", "early_exit")
MAX_K = 64


@dataclass(frozen=True)
class DecoderPlan:
    """What --draft, --k and the rest mean, before anything heavy is loaded."""

    model: str
    method: str
    drafter: str | None  # a draft model's source, or a head file
    k: int
    dtype: str
    device: str


@dataclass(frozen=True)
class LoadedDecoder:
    """LoadedDecoder weights; draft is what the engine's `draft` argument takes."""

    plan: DecoderPlan
    target: "LoadedModel"
    tokenizer: "Tokenizer"
    draft: "Transformer | EagleWeights | None"
    threads: int
    max_model_len: int

    def options(
        self, max_num_seqs: int, max_num_batched_tokens: int = 512, seed: int = 0
    ) -> "DecoderOptions":
        """Engine options of this plan."""
        from specsim.decoder.options import DecoderOptions

        return DecoderOptions(
            method=self.plan.method, num_speculative_tokens=self.plan.k,
            max_num_seqs=max_num_seqs, max_model_len=self.max_model_len,
            max_num_batched_tokens=max_num_batched_tokens, seed=seed,
        )


def need(packages: dict[str, str], command: str, extra: str = "decoder") -> None:
    """UsageError with the way to install when a package is missing. packages: module -> name."""
    missing = [name for module, name in packages.items() if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise UsageError(
            f"specsim {command} needs {', '.join(missing)}, which {verb} not installed: "
            f"pip install 'specsim-llm[{extra}]'"
        )


DECODER_PACKAGES = {"torch": "torch", "safetensors": "safetensors", "tokenizers": "tokenizers",
                    "gguf": "gguf"}


def plan(model: str, draft: str, k: int | None, dtype: str, device: str) -> DecoderPlan:
    """Check the options that need no weights. UsageError names the option."""
    if k is not None and not 0 <= k <= MAX_K:
        raise UsageError(f"--k {k} must lie in 0..{MAX_K}")
    method, drafter = _method(draft)
    if method == "eagle" and drafter is None:
        from specsim.decoder.drafters.eagle import shipped_head

        drafter = str(shipped_head(model))
    if method == "none" or k == 0:
        if k and method == "none":
            raise UsageError(f"--k {k} needs a drafter; leave it out or choose another --draft")
        return DecoderPlan(model, "none", None, 0, dtype, device)
    return DecoderPlan(model, method, drafter, DEFAULT_K[method] if k is None else k, dtype, device)


def _method(draft: str) -> tuple[str, str | None]:
    """The engine's method, and the file or model it drafts with."""
    word = draft.strip().lower().replace("-", "_")
    if word in _PLAIN_METHODS:
        return word, None
    if word in ("head", "eagle"):
        return "eagle", None  # the one that ships for the model
    if word == "draft_model":
        raise UsageError("--draft draft-model needs a model; name it, its folder or its .gguf file")
    path = Path(draft)
    if path.suffix == ".safetensors":
        if not path.is_file():
            raise UsageError(f"--draft {draft}: there is no such file")
        return "eagle", draft
    known = path.exists() or draft.startswith("random:") or word == "smollm2_135m"
    if not known:
        names = (*_PLAIN_METHODS, "head", "smollm2-135m")
        raise UsageError(
            f"--draft {draft[:60]!r} is neither a method nor a model, a folder or a file; "
            f"{closest(word, names).replace('_', '-')}methods: none, ngram, suffix, early-exit, "
            "head"
        )
    return "draft_model", draft


def prepare_torch(threads: int | None) -> int:
    """Import torch with worker threads that spin briefly, then sleep; the number of threads.

    OpenMP's threads spin while they wait. When something else runs on the same cores (an HTTP
    client, the event loop), threads that spin for long take the cores from the ones that work: on
    two busy cores a step took 15 times as long. Threads that sleep at once must be woken for every
    product: on two cores a step of a 135M model took 34.7 ms then, 24.3 ms with 20,000 spins
    (tens of microseconds), and with a busy neighbour 42.7 against 47.2 ms. OMP_WAIT_POLICY or
    GOMP_SPINCOUNT in the environment override this.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def read_tokenizer(plan: DecoderPlan) -> "Tokenizer":
    """The model's tokenizer, without its weights."""
    from specsim.decoder.models import find_folder
    from specsim.decoder.tokenizer import Tokenizer

    if plan.model.startswith("random:"):
        raise UsageError(f"{plan.model} has random weights and no tokenizer; choose another model")
    return Tokenizer(find_folder(plan.model))


def load(plan: DecoderPlan, max_model_len: int | None, threads: int | None) -> LoadedDecoder:
    """Load target and drafter for a context of max_model_len tokens (None: 2048, or the model's
    own if that is less)."""
    from specsim.decoder.config import read_config
    from specsim.decoder.models import find_folder, load_model

    used = prepare_torch(threads)
    import torch

    device = plan.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda, but torch sees no CUDA device; use cpu")
    tokenizer = read_tokenizer(plan)
    limit = read_config(find_folder(plan.model)).max_position
    length = min(limit, 2048) if max_model_len is None else max_model_len
    if not 2 <= length <= limit:
        raise UsageError(
            f"a context of {length} tokens must lie in 2..{limit}, which {plan.model} was made for"
        )
    positions = length + plan.k + 1

    def weights(source: str) -> "LoadedModel":
        return load_model(source, dtype=plan.dtype, device=device, max_positions=positions)

    target = weights(plan.model)
    draft: Transformer | EagleWeights | None = None
    if plan.method == "draft_model" and plan.drafter is not None:
        same = plan.drafter.lower() == plan.model.lower()
        draft = target.model if same else weights(plan.drafter).model
    elif plan.method == "eagle" and plan.drafter is not None:
        from specsim.decoder.drafters import eagle

        draft = eagle.EagleWeights.load(Path(plan.drafter))
    return LoadedDecoder(plan, target, tokenizer, draft, used, length)
