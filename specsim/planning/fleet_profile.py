"""A replica as Dynamo's planner wants it profiled: time to first token by prompt length, time per
token by share of the cache in use and context (the folder that its profiler writes, with
`prefill_raw_data.json` and `decode_raw_data.json`; read in ai-dynamo 1.5.1,
dynamo/planner/monitoring/perf_metrics.py, Apache-2.0). Milliseconds; throughput per GPU.
"""

from specsim.analytic.closed import closed_loop
from specsim.analytic.workload import Workload
from specsim.planning.fleet_size import Sized

PROMPTS = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0)  # of the usual context
CONTEXTS = (0.5, 1.0, 2.0)
MAX_BATCHES = 12


def planner_profile(sized: Sized) -> tuple[dict[str, object], dict[str, object]]:
    """(prefill, decode), each a table of equally long columns."""
    system, context = sized.system, sized.study.shape.context_tokens
    prompts = sorted({max(16, round(context * part)) for part in PROMPTS})
    ttft_s = [closed_loop(system, Workload(tokens, 2), 1).ttft_s for tokens in prompts]
    cache = system.memory.kv_tokens
    rows = []
    for tokens in (max(16, round(context * part)) for part in CONTEXTS):
        most = max(1, min(sized.slots or system.seqs_limit, system.memory.max_requests(tokens)))
        for batch in sorted({max(1, round(most ** (i / MAX_BATCHES)))
                             for i in range(MAX_BATCHES + 1)}):
            step_s = system.decode_step_s(system.decode_shape(batch, tokens))
            rows.append((batch * tokens / cache, tokens, step_s / system.tokens_per_step, batch))
    return (
        {"prefill_isl": prompts, "prefill_ttft": [1e3 * s for s in ttft_s],
         "prefill_thpt_per_gpu": [
             n / s / sized.gpus for n, s in zip(prompts, ttft_s, strict=True)]},
        {"x_kv_usage": [use for use, *_ in rows], "y_context_length": [n for _, n, *_ in rows],
         "z_itl": [1e3 * s for *_, s, _ in rows],
         "z_thpt_per_gpu": [n / s / sized.gpus for *_, s, n in rows], "max_kv_tokens": cache},
    )
