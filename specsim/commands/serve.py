"""`specsim serve`: the decoder behind an OpenAI-compatible HTTP server with vLLM's metrics."""

import sys
from typing import TYPE_CHECKING

from specsim.commands import decoder_setup as d
from specsim.commands.bind import command
from specsim.errors import one_line
from specsim.options.local import ServeModelCommand
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.serve.app import Service
    from specsim.serve.settings import ServeSettings

SERVE_PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn"}


@command(
    ServeModelCommand,
    "specsim serve --model smollm2-135m --draft ngram -k 3 --port 8000",
)
def serve(options: ServeModelCommand) -> None:
    """Serve a model over HTTP with the bundled decoder. /v1/completions, /v1/chat/completions,
    /v1/models, /health, /version and /metrics. Stops on Ctrl-C when the running requests are
    done."""
    plan = d.plan(options.model, options.draft, options.k, options.dtype, options.device)
    d.need(d.DECODER_PACKAGES | SERVE_PACKAGES, "serve")

    d.prepare_torch(options.threads)
    from specsim.serve.listening import bind, host_names, is_loopback, url_of
    from specsim.serve.server import serve as run
    from specsim.serve.settings import ServeSettings

    settings = ServeSettings(
        model_name=options.served_model_name or _name(options.model), max_queue=options.max_queue,
        shutdown_timeout_s=options.shutdown_timeout,
        spec_metrics=options.per_request_spec_decode_metrics,
        allowed_hosts=host_names(options.host), log=_say if options.log_interval else None,
        log_interval_s=options.log_interval or 10.0,
    )
    with bind(options.host, options.port) as sock:
        loaded = d.load(plan, options.max_model_len, options.threads)
        service = _service(loaded, settings, options)

        def ready() -> None:
            drafts = f"{plan.method.replace('_', '-')}, k = {plan.k}" if plan.k else "no drafts"
            _say(f"{settings.model_name} at {url_of(sock)} ({plan.dtype}, {drafts}, "
                 f"{counted(options.max_num_seqs, 'sequence')} of {loaded.max_model_len} tokens, "
                 f"{counted(loaded.threads, 'thread')})")
            if not is_loopback(options.host):
                _say(f"anyone who can reach {options.host} may use it: there is no authentication")

        run(service, sock, ready)


def _service(
    loaded: d.LoadedDecoder, settings: "ServeSettings", asked: ServeModelCommand
) -> "Service":
    """The engine, warmed up: the first request should not pay for first calls."""
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import SamplingParams
    from specsim.serve.app import Service

    options = loaded.options(
        asked.max_num_seqs, max_num_batched_tokens=asked.max_num_batched_tokens, seed=asked.seed
    )
    engine = Engine(loaded.target.model, options, draft=loaded.draft)
    engine.generate([[0]], SamplingParams(max_tokens=1))
    return Service(engine, loaded.tokenizer, settings)


def _say(line: str) -> None:
    sys.stderr.write(f"specsim serve: {one_line(line)}\n")
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
