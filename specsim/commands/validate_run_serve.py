"""Serving loads with the bundled decoder against the clock, for `specsim validate run`.

The engine gets the loads of `accuracy.run_serving`: equal requests of random tokens with forced
acceptance. Each run is timed as a client in the same process sees it.
"""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.accuracy.run_serving import ServingLoad
    from specsim.decoder.engine import Engine
    from specsim.decoder.slots import RequestResult
    from specsim.decoder.transformer import Transformer


def make_engine(target: "Transformer", load: "ServingLoad", seed: int) -> "Engine":
    """An engine for loads like this one, warmed up."""
    import random

    from specsim.calibrate.price import HEAD_VOCAB
    from specsim.decoder.drafters.eagle import EagleWeights
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import DecoderOptions
    from specsim.speculation.acceptance import Acceptance

    options = DecoderOptions(
        method=load.method, num_speculative_tokens=load.k, max_num_seqs=load.max_num_seqs,
        max_model_len=load.prompt_len + load.output_len + 1, seed=seed, trim_drafts=False,
    )
    forced = Acceptance.from_rate(load.alpha, load.k) if load.k else None
    head = None
    if load.method == "eagle":
        head = EagleWeights.random(target, seed, min(HEAD_VOCAB, target.config.vocab_size))
    engine = Engine(target, options, draft=head, acceptance=forced)
    rng = random.Random(seed)
    engine.run([(0.0, _request(engine, load, i, rng)) for i in range(2)])
    return engine


def _request(engine: "Engine", load: "ServingLoad", number: int, rng: Any) -> Any:
    from specsim.decoder.options import SamplingParams
    from specsim.decoder.slots import EngineRequest

    vocab = engine.target.config.vocab_size
    prompt = [rng.randrange(vocab) for _ in range(load.prompt_len)]
    params = SamplingParams(max_tokens=load.output_len, ignore_eos=True)
    return EngineRequest(f"request-{number}", prompt, params)


def serve(engine: "Engine", load: "ServingLoad", seed: int) -> dict[str, object]:
    """Serve a load; its figures, and one value per request. KeyboardInterrupt leaves the engine
    unusable for further loads."""
    import random

    from specsim.accuracy.run_serving import measured_figures
    from specsim.measure.serving import series_of

    rng = random.Random(f"prompts {seed}")
    rows_before = engine.stats.num_row_steps
    cpu, begun = time.process_time(), time.perf_counter()
    if load.arrivals:
        done = engine.run([
            (at, _request(engine, load, i, rng)) for i, at in enumerate(load.arrivals)
        ])
    else:
        done = _closed(engine, load, rng)
    wall = time.perf_counter() - begun
    busy = (time.process_time() - cpu) / wall
    rows = engine.stats.num_row_steps - rows_before
    tokens_per_step = sum(len(r.token_ids) - 1 for r in done) / max(1, rows)
    series = series_of(done)
    return {
        "figures": measured_figures(series, load.output_len, tokens_per_step),
        "cpu_over_wall": round(busy, 3), "wall_s": wall, "requests": len(done), "series": series,
    }


def _closed(engine: "Engine", load: "ServingLoad", rng: Any) -> "list[RequestResult]":
    """Clients that send the next request when the last one is answered."""
    waiting = [_request(engine, load, i, rng) for i in range(load.requests)]
    waiting.reverse()
    done: list[RequestResult] = []
    open_now = 0
    while waiting or open_now:
        while waiting and open_now < load.concurrency:
            engine.add(waiting.pop())
            open_now += 1
        for output in engine.step():
            if output.finished:
                done.append(engine.finished.pop(output.request_id))
                open_now -= 1
    return sorted(done, key=lambda r: r.arrival_s)
