"""What is measured, in the order of its worth (docs/measure.md).

A to D come first: they cost seconds and carry most of what a fit can learn (a simulated fit of 7
parameters from such points had 0.4 to 7 % standard error; from full steps of one model alone, 10 to
3,000 %). E whole steps judge. A run that is cut short still calibrates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from specsim.measure import attention, ceilings, gemm, moe, sampling, serving, steps
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


def _steps(
    ks: Sequence[int], seqs: Sequence[int], ctxs: Sequence[int], eagle: Sequence[int] = ()
) -> tuple[StepCase, ...]:
    """Plain steps, verification of n-gram drafts, and steps with a one-layer head.

    Short contexts first, since they also cost the least.
    """
    out = []
    for ctx, b in product(ctxs, seqs):
        out += [StepCase("ngram" if k else "none", k, b, ctx) for k in ks]
        out += [StepCase("eagle", k, b, ctx) for k in eagle]
    return tuple(out)


_CPU_SMALL = Grid(
    limits=RepeatLimits(warmups=1, least=4, most=30, cap_s=0.5),
    stream_bytes=(32 * _MIB, 256 * _MIB, 1024 * _MIB),
    cube=1024,
    gemm_rows=(1, 2, 4, 8, 16, 32, 64, 128),
    attention=tuple(product((1, 8, 32), (1, 4, 8), (128, 1024))),
    sampling=((1, 0), (1, 4), (8, 0), (8, 4), (32, 4)),
    steps=_steps((0, 1, 3, 7), (1, 4, 16), (128,), eagle=(3,))
    + _steps((0, 3), (1, 8), (1024,)) + _steps((0, 3), (32,), (128,)),
    draft_steps=(StepCase("draft_model", 3, 1, 128), StepCase("draft_model", 3, 4, 128)),
    moe_tokens=(1, 4, 16, 64),
    prompts=((64, 64), (512, 512), (1024, 256)),
    serving=DecoderLoad("ngram", 3, 0.6, max_num_seqs=8, prompt_len=64, output_len=32, burst=16,
                        seconds=12.0),
    shares=(0.0, 0.6),
)
_CPU_FULL = Grid(
    limits=RepeatLimits(warmups=2, least=6, most=40, cap_s=1.0),
    stream_bytes=tuple(n * _MIB for n in (8, 32, 128, 256, 512, 1024)),
    cube=2048,
    gemm_rows=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512),
    attention=tuple(product((1, 4, 8, 32), (1, 2, 4, 8), (128, 512, 2048))),
    sampling=tuple(product((1, 8, 32), (0, 4, 8))),
    steps=_steps((0, 1, 2, 3, 4, 5, 6, 7), (1, 2, 4, 8, 16, 32), (128,), eagle=(1, 3, 5))
    + _steps((0, 3, 7), (1, 8), (1024,)),
    draft_steps=tuple(StepCase("draft_model", k, b, 128) for b in (1, 4, 8) for k in (1, 3, 5)),
    moe_tokens=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    prompts=((32, 32), (128, 128), (512, 512), (2048, 2048), (2048, 512)),
    serving=DecoderLoad("ngram", 3, 0.6, max_num_seqs=16, prompt_len=128, output_len=64, burst=32,
                        seconds=40.0),
    shares=(0.0, 0.3, 0.6, 0.9),
)
_CUDA_SMALL = Grid(
    limits=RepeatLimits(warmups=3, least=10, most=20, cap_s=0.2),
    stream_bytes=(256 * _MIB, 4096 * _MIB),
    cube=8192,
    gemm_rows=(1, 8, 32, 128, 512),
    attention=tuple(product((1, 8, 64), (1, 4, 8), (256, 2048))),
    sampling=((1, 0), (32, 4), (128, 4)),
    steps=_steps((0, 4), (1, 32), (512,), eagle=(4,)),
    draft_steps=(StepCase("draft_model", 4, 1, 512), StepCase("draft_model", 4, 32, 512)),
    moe_tokens=(1, 8, 64),
    prompts=((512, 512), (2048, 2048)),
    serving=DecoderLoad("ngram", 4, 0.7, max_num_seqs=64, prompt_len=512, output_len=128,
                        burst=128, seconds=10.0),
    shares=(0.0, 0.6),
)
_CUDA_FULL = Grid(
    limits=RepeatLimits(warmups=10, least=20, most=30, cap_s=0.3),
    stream_bytes=(64 * _MIB, 1024 * _MIB, 4096 * _MIB),
    cube=8192,
    gemm_rows=(1, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 4096),
    attention=(*product((1, 8, 64), (1, 2, 4, 8), (256, 2048, 16384)),
               *product((1, 4), (1, 8), (65536,))),
    sampling=tuple(product((1, 32, 128), (0, 4, 8))),
    steps=_steps((0, 2, 4, 7), (1, 8, 32, 128), (512, 4096)) + _steps((), (1, 32), (512,), (4,)),
    draft_steps=tuple(StepCase("draft_model", k, b, 512) for b in (1, 32) for k in (2, 4, 7)),
    moe_tokens=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    prompts=((512, 512), (2048, 2048), (8192, 8192), (8192, 2048)),
    serving=DecoderLoad("ngram", 4, 0.7, max_num_seqs=64, prompt_len=512, output_len=256,
                        burst=192, seconds=25.0),
    shares=(0.0, 0.3, 0.6, 0.9),
)
_GRIDS = {
    ("cpu", "small"): _CPU_SMALL, ("cpu", "full"): _CPU_FULL,
    ("cuda", "small"): _CUDA_SMALL, ("cuda", "full"): _CUDA_FULL,
}


def grid_for(device: str, name: str) -> Grid:
    return _GRIDS[device, name]


def jobs_for(
    grid: Grid, models: Sequence[MeasuredModel], experts: MeasuredModel | None, dtype: str,
    device: str,
) -> list[MeasureJob]:
    """All jobs in order. models: dense ones, small to large; the smallest drafts for the largest
    where their vocabularies agree. experts: the model of part F, None to leave it out."""
    small, large = models[0], models[-1]
    out = ceilings.jobs(grid.stream_bytes, grid.cube, 400, dtype)
    for model in models:
        out += gemm.jobs(model, grid.gemm_rows, dtype)
    for model in models:
        out += attention.jobs(model, grid.attention, dtype, device)
    out += sampling.jobs(small, grid.sampling, draft_probs=True)
    for model in models:
        out += steps.step_jobs(model, grid.steps, dtype, device)
    if len(models) > 1 and small.config.vocab_size == large.config.vocab_size:
        out += steps.step_jobs(large, grid.draft_steps, dtype, device, draft=small)
    if experts is not None:
        out += moe.jobs(experts, grid.moe_tokens, dtype)
    for model in models:
        out += steps.prefill_jobs(model, grid.prompts, dtype)
    return out + serving.jobs(small if device == "cpu" else large, grid.serving, grid.shares, dtype)
