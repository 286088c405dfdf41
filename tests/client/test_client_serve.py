"""The client against the package's own server: drafts seen in chunks are those it counts."""

import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the decoder needs torch")
uvicorn = pytest.importorskip("uvicorn", reason="the server needs uvicorn")
pytest.importorskip("prometheus_client", reason="the server needs prometheus-client")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))

from serve_helpers import make_engine, make_service, write_model  # noqa: E402
from specsim.client.http import Target  # noqa: E402
from specsim.client.load import LiveLoad, drive  # noqa: E402
from specsim.client.prompts import Prompt  # noqa: E402
from specsim.client.stream import Sampling  # noqa: E402
from specsim.decoder.models import load_model  # noqa: E402
from specsim.decoder.tokenizer import Tokenizer  # noqa: E402
from specsim.serve.app import create_app  # noqa: E402
from specsim.serve.listening import bind, url_of  # noqa: E402


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"))
    engine = make_engine(load_model(folder, dtype="fp32").model, max_num_seqs=2)
    service = make_service(engine, Tokenizer(folder), spec_metrics="detailed")
    config = uvicorn.Config(create_app(service), log_level="warning", ws="none", lifespan="on")
    server = uvicorn.Server(config)
    with bind("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        deadline = time.monotonic() + 300
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        yield url_of(sock)
        server.should_exit = True
        thread.join(30)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("chat", [False, True])
def test_drafts_in_chunks_are_those_the_server_counts(url, chat):
    prompts = tuple(Prompt("ab ab ab ab" + "cd" * i, 24 + i) for i in range(6))
    found = drive(
        Target(url), LiveLoad(prompts, max_concurrency=2),
        Sampling(chat=chat, ignore_eos=True), sample_every_s=0.05,
    )
    assert len(found.finished) == 6 and not found.failures()
    records = [r.record for r in found.requests]
    assert [r.output_tokens for r in records] == [24 + i for i in range(6)]
    assert all(sum(r.chunk_tokens) == r.record.output_tokens for r in found.requests)
    drafted = sum(r.verify_steps for r in records)
    accepted = sum(r.accepted_tokens for r in records)
    assert drafted > 0
    bench = found.bench()
    counted = bench.acceptance
    assert (counted.num_drafts, counted.accepted_tokens) == (drafted, accepted)
    # Tokens beyond a request's end were accepted and cut: never more in chunks than accepted.
    gained = sum(n - 1 for r in found.requests for n in r.chunk_tokens[1:])
    assert accepted - 3 * len(records) <= gained <= accepted
    assert bench.server_args.num_speculative_tokens == 3
    assert bench.tokens_per_step == pytest.approx(
        sum(r.output_tokens - 1 for r in records) / sum(r.chunks - 1 for r in records)
    )
    assert bench.draft_share == pytest.approx(
        drafted / sum(r.chunks - 1 for r in records), abs=0.02
    )
