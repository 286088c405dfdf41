"""What is measured, in the order of its worth (docs/measure.md).

A to D come first: they cost seconds and carry most of what a fit can learn (a simulated fit of 7
parameters from such points had 0.4 to 7 % standard error; from full steps of one model alone, 10 to
3,000 %). E whole steps judge. A run that is cut short still calibrates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from specsim.data import data_table
from specsim.measure import kernels, serving, steps
from specsim.measure.models import MeasuredModel
from specsim.measure.preload import StepCase
from specsim.measure.serving import DecoderLoad
from specsim.measure.session import MeasureJob
from specsim.measure.timer import RepeatLimits

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Grid:
    """The sizes of every part. prompts: (length, chunk)."""

    limits: RepeatLimits
    stream_bytes: tuple[int, ...]
    cube: int
    gemm_rows: tuple[int, ...]
    attention: tuple[tuple[int, int, int], ...]  # seqs, q_len, ctx
    sampling: tuple[tuple[int, int], ...]  # rows, k
    steps: tuple[StepCase, ...]
    draft_steps: tuple[StepCase, ...]  # of the larger models, drafted by smaller
    moe_tokens: tuple[int, ...]
    prompts: tuple[tuple[int, int], ...]
    serving: DecoderLoad
    shares: tuple[float, ...]


def grid_for(device: str, name: str) -> Grid:
    raw = data_table("catalog", "measure.toml")[device][name]
    draft = raw["draft_steps"]
    return Grid(
        limits=RepeatLimits(**raw["limits"]),
        stream_bytes=tuple(size * _MIB for size in raw["stream_mib"]),
        attention=tuple(shape for lists in raw["attention"] for shape in product(*lists)),
        sampling=tuple(shape for lists in raw["sampling"] for shape in product(*lists)),
        steps=tuple(case for steps in raw["steps"] for case in _cases(**steps)),
        draft_steps=tuple(StepCase("draft_model", k, b, draft["ctx"])
                          for b in draft["seqs"] for k in draft["k"]),
        prompts=tuple((length, chunk) for length, chunk in raw["prompts"]),
        serving=DecoderLoad(**raw["serving"]),
        cube=raw["cube"],
        **{name: tuple(raw[name]) for name in ("gemm_rows", "moe_tokens", "shares")},
    )


def _cases(
    seqs: Sequence[int], ctx: Sequence[int], ngram: Sequence[int] = (), eagle: Sequence[int] = ()
) -> Iterator[StepCase]:
    """Plain steps, verification of n-gram drafts, and steps with a one-layer head."""
    for tokens, b in product(ctx, seqs):
        yield from (StepCase("ngram" if k else "none", k, b, tokens) for k in ngram)
        yield from (StepCase("eagle", k, b, tokens) for k in eagle)


def jobs_for(
    grid: Grid, models: Sequence[MeasuredModel], experts: MeasuredModel | None, dtype: str,
    device: str,
) -> list[MeasureJob]:
    """All jobs in order. models: dense ones, small to large; the smallest drafts for the largest
    where their vocabularies agree. experts: the model of part F, None to leave it out."""
    small, large = models[0], models[-1]
    out = kernels.ceiling_jobs(grid.stream_bytes, grid.cube, 400, dtype)
    for model in models:
        out += kernels.product_jobs(model, grid.gemm_rows, dtype)
    for model in models:
        out += kernels.attention_jobs(model, grid.attention, dtype, device)
    out += kernels.sampling_jobs(small, grid.sampling, draft_probs=True)
    for model in models:
        out += steps.step_jobs(model, grid.steps, dtype, device)
    if len(models) > 1 and small.config.vocab_size == large.config.vocab_size:
        out += steps.step_jobs(large, grid.draft_steps, dtype, device, draft=small)
    if experts is not None:
        out += kernels.expert_jobs(experts, grid.moe_tokens, dtype)
    for model in models:
        out += steps.prefill_jobs(model, grid.prompts, dtype)
    return out + serving.jobs(small if device == "cpu" else large, grid.serving, grid.shares, dtype)
