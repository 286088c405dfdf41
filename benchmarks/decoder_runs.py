"""Runs that decoder_speed.py compares: this decoder and transformers, timed step by step.

Every run decodes greedily and yields the duration of each decode step (a round of drafting and
verifying, where there are drafts) after the first token. Runs are interleaved and repeated; greedy
decoding repeats the same steps, so the least duration of each step over the rounds is what the step
costs when nothing disturbs it. Times are seconds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from specsim.decoder.config import ModelConfig
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.transformer import ModelOptions, Transformer
from specsim.decoder.weights import CheckpointSource
from specsim.measure.session import refill


@dataclass(frozen=True)
class Run:
    """One prompt decoded: step durations, tokens they gave (the first token is not among them)."""

    steps_s: list[float]
    tokens: int
    ids: list[int]


@dataclass
class Best:
    """Several rounds of the same runs. steps_s: per prompt, the least duration of each step."""

    name: str
    steps_s: list[list[float]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    rounds_s: list[float] = field(default_factory=list)  # decode time of each whole round
    cpu_over_wall: list[float] = field(default_factory=list)

    @property
    def seconds_per_token(self) -> float:
        return sum(map(sum, self.steps_s)) / sum(self.tokens)

    @property
    def mean_seconds_per_token(self) -> float:
        """With all disturbances: the mean over the rounds."""
        return sum(self.rounds_s) / len(self.rounds_s) / sum(self.tokens)

    @property
    def tokens_per_step(self) -> float:
        return sum(self.tokens) / sum(map(len, self.steps_s))

    @property
    def step_s(self) -> float:
        return sum(map(sum, self.steps_s)) / sum(map(len, self.steps_s))


Decode = Callable[[Sequence[int]], Run]


def compare(decoders: dict[str, Decode], prompts: Sequence[Sequence[int]], rounds: int,
            log: Callable[[str], None]) -> dict[str, Best]:
    """All decoders over all prompts, in turn, `rounds` times after a short warm-up each."""
    best = {name: Best(name) for name in decoders}
    for decode in decoders.values():
        decode(prompts[0])
    for number in range(rounds):
        for name, decode in decoders.items():
            found, runs = best[name], []
            cpu, begun = time.process_time(), time.perf_counter()
            for ids in prompts:
                runs.append(decode(ids))
            wall = time.perf_counter() - begun
            found.cpu_over_wall.append((time.process_time() - cpu) / wall)
            found.rounds_s.append(sum(sum(run.steps_s) for run in runs))
            if not found.steps_s:
                found.steps_s = [run.steps_s for run in runs]
                found.tokens = [run.tokens for run in runs]
                found.ids = [run.ids for run in runs]
                continue
            if [len(run.steps_s) for run in runs] != [len(s) for s in found.steps_s]:
                raise SystemExit(f"{name}: round {number + 1} took other steps than round 1")
            found.steps_s = [
                [min(pair) for pair in zip(old, run.steps_s, strict=True)]
                for old, run in zip(found.steps_s, runs, strict=True)
            ]
        log(f"  round {number + 1}: " + ", ".join(
            f"{b.name} {b.seconds_per_token * 1e3:.1f}" for b in best.values()) + " ms/token")
    return best


# ---------------------------------------------------------------------- this decoder


def ours(
    model: Transformer, max_tokens: int, longest: int, method: str = "none", k: int = 0,
    draft: Transformer | EagleWeights | None = None,
) -> Decode:
    """This project's engine, one request at a time."""
    options = DecoderOptions(method=method, num_speculative_tokens=k, max_num_seqs=1,
                             max_model_len=longest + max_tokens)
    engine = Engine(model, options, draft=draft)
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)

    def decode(ids: Sequence[int]) -> Run:
        engine.timings.clear()
        out = engine.generate([ids], params)[0].token_ids
        steps = [t.wall_s for t in engine.timings if t.decode_seqs]
        return Run(steps, len(out) - 1, out)

    return decode


# ---------------------------------------------------------------------- transformers


def transformers_quietly() -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def theirs(model: Any, max_tokens: int, **options: Any) -> Decode:
    """transformers' generate. options: prompt_lookup_num_tokens, or assistant_model."""
    transformers = transformers_quietly()

    class Clock(transformers.StoppingCriteria):  # type: ignore[misc]
        """Called once per step, or per round of assisted generation."""

        def __init__(self) -> None:
            self.marks: list[tuple[float, int]] = []

        def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            self.marks.append((time.perf_counter(), ids.shape[1]))
            return torch.zeros(ids.shape[0], dtype=torch.bool)

    @torch.inference_mode()
    def decode(ids: Sequence[int]) -> Run:
        clock = Clock()
        tensor = torch.tensor([list(ids)])
        out = model.generate(
            tensor, attention_mask=torch.ones_like(tensor), do_sample=False,
            max_new_tokens=max_tokens, min_new_tokens=max_tokens, pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([clock]), **options,
        )
        marks = clock.marks
        steps = [b[0] - a[0] for a, b in pairwise(marks)]
        return Run(steps, marks[-1][1] - marks[0][1], out[0, len(ids):].tolist())

    return decode


def assistant(model: Any, k: int) -> Any:
    """A transformers model set up to draft exactly k tokens per round."""
    model.generation_config.num_assistant_tokens = k
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


def random_llama(config: ModelConfig, seed: int = 0) -> Any:
    """A transformers Llama of this shape with random bf16 weights."""
    transformers = transformers_quietly()
    raw = config.to_hf("bfloat16")
    hf_config = transformers.LlamaConfig(**{k: v for k, v in raw.items() if k not in (
        "architectures", "model_type", "torch_dtype")}, dtype=torch.bfloat16)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(hf_config).to(torch.bfloat16)
    model.to_empty(device="cpu")
    # Buffers have no checkpoint to come from: rotary frequencies are computed anew.
    model.model.rotary_emb = type(model.model.rotary_emb)(hf_config)
    model.tie_weights()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.fill_(1.0)
        else:
            refill(parameter.data, generator)
            parameter.data.mul_(0.02)
    return model.eval()


class _State:
    """Tensors of a loaded transformers model, as the decoder's loader asks for them."""

    folder = "memory"

    def __init__(self, model: Any) -> None:
        self._tensors = model.state_dict()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __call__(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._tensors[name]
        return tensor


def same_weights(
    model: Any, config: ModelConfig, dtype: torch.dtype, **options: Any
) -> Transformer:
    """This decoder with the weights of a loaded transformers model."""
    source = CheckpointSource(config, _State(model), dtype)  # type: ignore[arg-type]
    with torch.no_grad():
        return Transformer(config, source, ModelOptions(dtype=dtype, **options))
