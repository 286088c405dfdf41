"""Part E: whole engine steps, plain and speculative. These are kept out of fits and judge them.

Part G: prompts, in one chunk and in several.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from specsim.calibrate.records import Measurement, Timing
from specsim.decoder.config import ModelConfig
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest
from specsim.decoder.transformer import Transformer
from specsim.measure.kernels import matrices
from specsim.measure.models import MeasuredModel
from specsim.measure.preload import StepCase, run_steps
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured
from specsim.measure.timer import Timed, repeat
from specsim.units import DTYPE_BYTES

HEAD_VOCAB = 8192  # rows of a random head's reduced vocabulary
_ROOM = 128  # positions that the steps of one point may add to its context
_MAX_CACHE = {"cpu": 3e9, "cuda": 90e9}


def weights(config: ModelConfig) -> float:
    """Weights a step reads, elements: the products of all layers and the head."""
    return sum(n * k * (1 if name == "lm_head" else config.num_layers)
               for name, (n, k) in matrices(config).items())


def kv_bytes(config: ModelConfig, tokens: float, dtype: str) -> float:
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return per_token * tokens * DTYPE_BYTES[dtype]


def step_jobs(
    model: MeasuredModel, shapes: Sequence[StepCase], dtype: str, device: str,
    draft: MeasuredModel | None = None,
) -> list[MeasureJob]:
    """method 'draft_model' needs `draft`. Left out: what the model
    has no positions or the device no memory for."""
    c = model.config
    out = []
    for method, k, seqs, ctx in shapes:
        cache = kv_bytes(c, seqs * (ctx + k + 1), dtype)
        if cache > _MAX_CACHE[device] or ctx + _ROOM > c.max_position:
            continue
        shape: dict[str, int | float | str] = {
            "model": model.name, "method": method, "k": k, "seqs": seqs, "ctx": ctx,
            "dtype": dtype,
        }
        names: tuple[str, ...] = (model.name,)
        moved = weights(c) * DTYPE_BYTES[dtype] + cache
        flops = 2 * weights(c) * seqs * (k + 1)
        if method == "draft_model":
            assert draft is not None
            shape["draft_model"] = draft.name
            names = (*names, draft.name)
            moved += k * weights(draft.config) * DTYPE_BYTES[dtype]
        if method == "eagle":
            moved += k * (HEAD_VOCAB + 20 * c.hidden_size) * c.hidden_size * DTYPE_BYTES[dtype]
        work = JobCost(bytes=moved, flops=flops, calls=12 * c.num_layers, setup_bytes=3 * cache)
        point = MeasurePoint("step", shape)
        out.append(MeasureJob("E", (point,), work, names, partial(_step, point)))
    return out


def _step(point: MeasurePoint, session: Session) -> list[Measurement]:
    shape = point.shape
    target = session.model_of(point)
    method = str(shape["method"])
    draft: Transformer | EagleWeights | None = None
    if method == "draft_model":
        draft = session.model(str(shape["draft_model"]))
    elif method == "eagle":
        draft = EagleWeights.random(target, session.seed,
                                    min(HEAD_VOCAB, target.config.vocab_size))
    steps = StepCase(method, *(int(shape[name]) for name in ("k", "seqs", "ctx")))
    times = run_steps(target, steps, session.limits, draft, session.seed)
    found = measured(point, Timed(times.wall, times.cpu_over_wall), mean_ctx=times.ctx)
    return [replace(found, phases_s=times.phases_s)]


def prefill_jobs(
    model: MeasuredModel, shapes: tuple[tuple[int, int], ...], dtype: str
) -> list[MeasureJob]:
    """shapes: (prompt length, chunk). One job gives a point per chunk of the prompt."""
    c = model.config
    out = []
    for length, chunk in shapes:
        if length + 2 > c.max_position:
            continue
        starts = range(0, length, chunk)
        points = tuple(
            MeasurePoint("prefill", {
                "model": model.name, "new": min(chunk, length - at), "cached": at,
                "prompt_len": length, "dtype": dtype,
            })
            for at in starts
        )
        attention = 4.0 * length * length / 2 * c.num_heads * c.head_dim * c.num_layers
        work = JobCost(bytes=len(points) * weights(c) * DTYPE_BYTES[dtype],
                    flops=2 * weights(c) * length + 4 * attention, calls=12 * c.num_layers)
        run = partial(_prefill, points, length, chunk)
        out.append(MeasureJob("G", points, work, (model.name,), run))
    return out


def _prefill(
    points: tuple[MeasurePoint, ...], length: int, chunk: int, session: Session
) -> list[Measurement]:
    """Prompts one after another through the engine; the prompt phase of each chunk's step.

    The phase is timed on the device; the host does not wait for a GPU's chunk to end.
    """
    target = session.model_of(points[0])
    options = DecoderOptions(max_num_seqs=1, max_model_len=length + 2,
                             max_num_batched_tokens=chunk)
    engine = Engine(target, options)
    prompt = [(7 * i + 11) % target.config.vocab_size for i in range(length)]
    params = SamplingParams(max_tokens=1, ignore_eos=True)

    def once() -> list[float]:
        engine.timings.clear()
        engine.run([(0.0, EngineRequest("prompt", prompt, params))])
        return [t.phases_s["prompt"] for t in engine.timings if t.prompt_tokens]

    runs, busy = repeat(replace(session.limits, warmups=1), once)
    return [measured(point, Timed(Timing.of(samples), busy))
            for point, samples in zip(points, zip(*runs, strict=True), strict=True)]
