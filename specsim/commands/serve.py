"""`specsim serve`: the decoder behind an OpenAI-compatible HTTP server with vLLM's metrics."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from specsim.commands import decoder_setup as d

if TYPE_CHECKING:
    from specsim.serve.app import Service
    from specsim.serve.settings import ServeSettings

SERVE_PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn",
                  "prometheus_client": "prometheus-client"}
MAX_SEQS, MAX_QUEUE, MAX_LEN = 1024, 100_000, 1 << 20

Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes a free one.")]
ServedName = Annotated[
    str | None, typer.Option("--served-model-name", help="Name of the model in the API.")
]
MaxNumSeqs = Annotated[int, typer.Option("--max-num-seqs", help="Sequences that run at once.")]
MaxModelLen = Annotated[
    int | None,
    typer.Option("--max-model-len", help="Tokens of prompt and answer. Default: up to 2048."),
]
MaxBatched = Annotated[
    int, typer.Option("--max-num-batched-tokens", help="Prompt tokens computed per step.")
]
MaxQueue = Annotated[
    int, typer.Option("--max-queue", help="Requests that may wait; more are refused with 429.")
]
Grace = Annotated[
    float, typer.Option("--shutdown-timeout", help="Seconds for running requests after a signal.")
]
PerRequest = Annotated[
    str,
    typer.Option(
        "--per-request-spec-decode-metrics",
        help="none, summary or detailed: what each response says about its drafts.",
    ),
]
LogEvery = Annotated[
    float, typer.Option("--log-interval", help="Seconds between log lines; 0 writes none.")
]


def register(app: typer.Typer) -> None:
    app.command(name="serve")(serve)


def serve(
    model: d.ModelOpt = "smollm2-135m",
    draft: d.DraftOpt = "ngram",
    k: d.KOpt = None,
    dtype: d.DtypeOpt = "bf16",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    served_model_name: ServedName = None,
    max_num_seqs: MaxNumSeqs = 8,
    max_model_len: MaxModelLen = None,
    max_num_batched_tokens: MaxBatched = 512,
    max_queue: MaxQueue = 256,
    shutdown_timeout: Grace = 60.0,
    per_request_spec_decode_metrics: PerRequest = "none",
    log_interval: LogEvery = 10.0,
    seed: d.SeedOpt = 0,
    threads: d.ThreadsOpt = None,
    device: d.DeviceOpt = "auto",
) -> None:
    """Serve a model over HTTP: /v1/completions, /v1/chat/completions, /v1/models, /health,
    /version and /metrics. Stops on Ctrl-C when the running requests are done."""
    from specsim.errors import UsageError

    plan = d.plan(model, draft, k, dtype, device)
    limits = (("--max-num-seqs", max_num_seqs, 1, MAX_SEQS),
              ("--max-queue", max_queue, 0, MAX_QUEUE),
              ("--max-num-batched-tokens", max_num_batched_tokens, 1, MAX_LEN),
              ("--shutdown-timeout", shutdown_timeout, 0, 86400),
              ("--log-interval", log_interval, 0, 86400))
    for name, value, low, high in limits:
        if not low <= value <= high:
            raise UsageError(f"{name} {value:g} must lie in {low}..{high}")
    d.need(d.DECODER_PACKAGES | SERVE_PACKAGES, "serve", "serve")

    d.prepare_torch(threads)
    from specsim.serve.server import bind, host_names, is_loopback, url_of
    from specsim.serve.server import serve as run
    from specsim.serve.settings import ServeSettings

    settings = ServeSettings(
        model_name=served_model_name or _name(model), max_queue=max_queue,
        shutdown_timeout_s=shutdown_timeout, spec_metrics=per_request_spec_decode_metrics,
        allowed_hosts=host_names(host), log=_say if log_interval else None,
        log_interval_s=log_interval or 10.0,
    )
    with bind(host, port) as sock:
        loaded = d.load(plan, max_model_len, threads)
        service = _service(loaded, settings, max_num_seqs, max_num_batched_tokens, seed)

        def ready() -> None:
            drafts = f"{plan.method.replace('_', '-')}, k = {plan.k}" if plan.k else "no drafts"
            _say(f"{settings.model_name} at {url_of(sock)} ({plan.dtype}, {drafts}, "
                 f"{max_num_seqs} sequences of {loaded.max_model_len} tokens, "
                 f"{loaded.threads} thread{'s' if loaded.threads > 1 else ''})")
            if not is_loopback(host):
                _say(f"anyone who can reach {host} may use it: there is no authentication")

        run(service, sock, ready)


def _service(
    loaded: d.Loaded, settings: "ServeSettings", max_num_seqs: int, max_num_batched_tokens: int,
    seed: int,
) -> "Service":
    """The engine, warmed up: the first request should not pay for first calls."""
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import SamplingParams
    from specsim.serve.app import Service

    options = loaded.options(max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, seed=seed)
    engine = Engine(loaded.target.model, options, draft=loaded.draft)
    engine.generate([[0]], SamplingParams(max_tokens=1))
    return Service(engine, loaded.tokenizer, settings)


def _say(line: str) -> None:
    sys.stderr.write(f"specsim serve: {line}\n")
    sys.stderr.flush()


def _name(model: str) -> str:
    """The API's name of a model: a packaged name as written, else the name of its folder or file
    without its suffix."""
    from pathlib import Path

    path = Path(model)
    if not path.exists():
        return model
    path = path.resolve()
    return path.stem if path.is_file() else path.name
