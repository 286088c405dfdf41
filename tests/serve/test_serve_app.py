"""Whole answers: text, usage, choices, errors, limits."""

import asyncio

import pytest

from serve_helpers import END_ID, VOCAB, make_engine, make_service, running, until
from specsim.decoder.options import SamplingParams

PROMPT = "ab ab ab"


def serve(model, tokenizer, work, engine=None, **settings):
    """Run work(client, service) against a running server."""
    engine = engine or make_engine(model)
    service = make_service(engine, tokenizer, **settings)

    async def go():
        async with running(service) as client:
            return await work(client, service)

    return asyncio.run(go())


def expected(model, tokenizer, prompt, **params):
    """What the engine gives without a server."""
    engine = make_engine(model)
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    return engine.generate([ids], SamplingParams(**params))[0]


def test_answer_is_the_engines_own_with_usage(model, tokenizer):
    reply = serve(model, tokenizer, lambda c, _: c.complete(
        model="tiny", prompt=PROMPT, max_tokens=20, temperature=0))
    want = expected(model, tokenizer, PROMPT, max_tokens=20)
    assert reply.status == 200
    body = reply.json
    assert body["object"] == "text_completion"
    assert body["model"] == "tiny"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [{"index": 0, "text": tokenizer.decode(want.token_ids),
                                "logprobs": None, "finish_reason": "length", "stop_reason": None}]
    assert body["usage"] == {"prompt_tokens": 8, "completion_tokens": 20, "total_tokens": 28}
    assert "metrics" not in body


def test_token_ids_and_text_are_the_same_prompt(model, tokenizer):
    async def work(client, _):
        text = await client.complete(prompt=PROMPT, temperature=0)
        ids = await client.complete(prompt=tokenizer.encode(PROMPT), temperature=0)
        return text.json["choices"], ids.json["choices"]

    text, ids = serve(model, tokenizer, work)
    assert text == ids


def test_prompts_and_answers_are_numbered_and_counted(model, tokenizer):
    body = {"prompt": ["ab ab", "x"], "n": 2, "max_tokens": 6, "seed": 5}

    async def work(client, _):
        return [(await client.complete(**body)).json for _ in range(2)] + [
            (await client.complete(**body | {"temperature": 0})).json]

    first, second, greedy = serve(model, tokenizer, work)
    assert [c["index"] for c in first["choices"]] == [0, 1, 2, 3]
    # A prompt counts once however many answers it gets.
    assert first["usage"] == {"prompt_tokens": 6, "completion_tokens": 24, "total_tokens": 30}
    texts = [c["text"] for c in first["choices"]]
    assert texts[0] != texts[1]
    assert texts == [c["text"] for c in second["choices"]]
    one = expected(model, tokenizer, "ab ab", max_tokens=6)
    assert [c["text"] for c in greedy["choices"][:2]] == [tokenizer.decode(one.token_ids)] * 2


def test_chat_goes_through_the_template(model, tokenizer):
    async def work(client, _):
        return await client.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "temperature": 0})

    body = serve(model, tokenizer, work).json
    ids = [END_ID + 1, *tokenizer.encode("hi"), END_ID, END_ID + 2]
    want = expected(model, tokenizer, ids, max_tokens=5)
    assert body["object"] == "chat.completion"
    assert body["usage"]["prompt_tokens"] == 5
    assert body["choices"][0]["message"] == {"role": "assistant",
                                             "content": tokenizer.decode(want.token_ids)}


def test_chat_without_max_tokens_gets_the_rest_of_the_context(model, tokenizer):
    async def work(client, _):
        return await client.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hi"}], "temperature": 0})

    body = serve(model, tokenizer, work, make_engine(model, max_model_len=40)).json
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 35, "total_tokens": 40}


def test_stop_string_ends_the_answer_and_frees_the_slot(model, tokenizer):
    text = tokenizer.decode(expected(model, tokenizer, PROMPT, max_tokens=30).token_ids)
    stop = text[9:12]
    at = text.index(stop)

    async def work(client, service):
        reply = await client.complete(prompt=PROMPT, max_tokens=30, temperature=0,
                                      stop=["~~~", stop])
        await until(lambda: not service.engine.has_work)
        service.engine.check_integrity()
        return reply.json, await client.metrics()

    body, metrics = serve(model, tokenizer, work)
    assert body["choices"][0]["text"] == text[:at]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["stop_reason"] == stop
    assert body["usage"]["completion_tokens"] == at + 3
    assert metrics["request_success_total", "stop"] == 1
    assert metrics["request_success_total", "abort"] == 0
    assert metrics["generation_tokens_total"] == at + 3


def test_stop_token_ids_are_told_from_the_models_own_end(model, tokenizer):
    want = expected(model, tokenizer, PROMPT, max_tokens=30)
    token = want.token_ids[4]
    first = want.token_ids.index(token)

    async def work(client, _):
        return (await client.complete(prompt=PROMPT, max_tokens=30, temperature=0,
                                      stop_token_ids=[token])).json

    choice = serve(model, tokenizer, work)["choices"][0]
    assert choice["text"] == tokenizer.decode(want.token_ids[: first + 1])
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == token


def test_end_token_ends_unless_ignored(model, tokenizer, monkeypatch):
    want = expected(model, tokenizer, PROMPT, max_tokens=12)
    token = want.token_ids[5]
    first = want.token_ids.index(token)
    from dataclasses import replace

    monkeypatch.setattr(model, "config", replace(model.config, eos_token_ids=(token,)))

    async def work(client, _):
        body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        return (await client.complete(**body)).json, (
            await client.complete(**body, ignore_eos=True)).json

    ended, ignored = serve(model, tokenizer, work)
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["choices"][0]["stop_reason"] is None
    assert ended["usage"]["completion_tokens"] == first + 1
    assert ignored["choices"][0]["finish_reason"] == "length"
    assert ignored["usage"]["completion_tokens"] == 12


def test_each_response_can_tell_its_own_speculation(model, tokenizer):
    async def work(client, _):
        reply = await client.complete(prompt=PROMPT, max_tokens=40, temperature=0)
        two = await client.complete(prompt=PROMPT, n=2, max_tokens=4)
        return reply.json, two.json

    body, two = serve(model, tokenizer, work, spec_metrics="detailed")
    found = body["metrics"]["speculative_decoding"]
    want = expected(model, tokenizer, PROMPT, max_tokens=40)
    steps = [(p, a) for p, a in want.steps if p]
    assert found["per_step_drafted"] == [p for p, _ in steps]
    assert found["per_step_accepted"] == [a for _, a in steps]
    assert found["num_spec_steps"] == len(steps)
    assert sum(found["acceptance_histogram"]) == len(steps)
    assert "metrics" not in two


def test_counters_are_those_of_the_engine(model, tokenizer):
    async def work(client, service):
        for prompt in (PROMPT, "abcdefgh", "x"):
            await client.complete(prompt=prompt, max_tokens=40, temperature=0)
        return await client.metrics(), service.engine.stats

    metrics, stats = serve(model, tokenizer, work)
    assert stats.num_drafts > 10
    assert stats.num_drafts < stats.num_row_steps, "some steps must have had no draft"
    assert metrics["spec_decode_num_drafts_total"] == stats.num_drafts
    assert metrics["spec_decode_num_draft_tokens_total"] == stats.num_draft_tokens
    assert metrics["spec_decode_num_accepted_tokens_total"] == stats.num_accepted_tokens
    assert [metrics["spec_decode_num_accepted_tokens_per_pos_total", str(i)] for i in range(3)] == (
        stats.accepted_per_position)
    assert metrics["prompt_tokens_total"] == stats.num_prompt_tokens == 8 + 8 + 1
    assert metrics["generation_tokens_total"] == stats.num_generation_tokens == 120
    assert metrics["request_success_total", "length"] == 3
    assert metrics["iteration_tokens_total_sum"] == 137
    assert metrics["iteration_tokens_total_count"] == stats.num_steps
    # One output per step of a request: the first is its time to first token, the rest are gaps.
    assert metrics["time_to_first_token_seconds_count"] == 3
    assert metrics["inter_token_latency_seconds_count"] == stats.num_row_steps
    assert metrics["inter_token_latency_seconds_sum"] == pytest.approx(
        metrics["request_decode_time_seconds_sum"])
    assert metrics["e2e_request_latency_seconds_sum"] == pytest.approx(
        metrics["request_queue_time_seconds_sum"] + metrics["request_inference_time_seconds_sum"])


def test_plain_decoding_has_no_draft_counts(model, tokenizer):
    async def work(client, _):
        await client.complete(prompt=PROMPT, max_tokens=10)
        return await client.metrics()

    metrics = serve(model, tokenizer, work, make_engine(model, method="none", k=0))
    assert metrics["spec_decode_num_drafts_total"] == 0
    assert not any(key[0].startswith("spec_decode_num_accepted_tokens_per_pos")
                   for key in metrics if isinstance(key, tuple))


def test_models_version_health(model, tokenizer):
    async def work(client, _):
        return [await client.get(path) for path in ("/v1/models", "/version", "/health")]

    models, version, health = serve(model, tokenizer, work)
    assert models.json["data"][0]["id"] == "tiny"
    assert models.json["data"][0]["max_model_len"] == 256
    assert version.json["version"]
    assert (health.status, health.body) == (200, b"")


def test_errors_have_openais_shape(model, tokenizer):
    async def work(client, _):
        return {
            "json": await client.post("/v1/completions", b"{"),
            "value": await client.complete(prompt=PROMPT, temperature=-1),
            "model": await client.complete(prompt=PROMPT, model="gpt"),
            "long": await client.complete(prompt="x" * 250, max_tokens=20),
            "empty": await client.complete(prompt=""),
            "path": await client.get("/v1/completion"),
            "method": await client.get("/v1/completions"),
            "kind": await client.post("/v1/completions", b"{}", {"content-type": "text/plain"}),
            "host": await client.get("/v1/models", {"host": "example.com"}),
        }

    replies = serve(model, tokenizer, work, allowed_hosts=("127.0.0.1",))
    status = {name: reply.status for name, reply in replies.items()}
    assert status == {"json": 400, "value": 400, "model": 404, "long": 400, "empty": 400,
                      "path": 404, "method": 405, "kind": 415, "host": 400}
    for name, reply in replies.items():
        error = reply.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, name
        assert error["type"] == "invalid_request_error"
    assert replies["value"].json["error"]["param"] == "temperature"
    assert replies["long"].json["error"]["code"] == "context_length_exceeded"
    assert "/v1/completions" in replies["path"].json["error"]["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "LOCALHOST:1", "[::1]:8000"])
def test_names_of_this_machine_are_served(model, tokenizer, host):
    reply = serve(model, tokenizer, lambda c, _: c.get("/version", {"host": host}),
                  allowed_hosts=("127.0.0.1", "localhost", "[::1]"))
    assert reply.status == 200


def test_body_that_is_too_large(model, tokenizer):
    limit = 1 << 20

    async def work(client, _):
        fits = await client.post("/v1/completions", b" " * (limit - 13) + b'{"prompt":""}')
        over = await client.post("/v1/completions", b" " * (limit - 12) + b'{"prompt":""}')
        # Without Content-Length, in pieces; the answer does not wait for more than it must.
        pieces = client.open("/v1/completions", None, parts=[(b" " * limit, True), (b"x", False)])
        # Far too large: refused by its announced size, nothing is read.
        huge = client.open("/v1/completions", None, {"content-length": str(1 << 40)}, parts=[])
        return fits, over, await pieces.done(), await huge.done()

    fits, over, pieces, huge = serve(model, tokenizer, work)
    assert fits.status == 400
    assert "no tokens" in fits.json["error"]["message"]
    for reply in (over, pieces, huge):
        assert reply.status == 413
        assert reply.json["error"]["code"] == "body_too_large"
        assert reply.headers["connection"] == "close"


def test_body_that_does_not_come(model, tokenizer):
    async def work(client, _):
        return await client.open("/v1/completions", None, parts=[(b'{"pro', True)]).done()

    assert serve(model, tokenizer, work, body_timeout_s=0.05).status == 408


def test_more_sequences_than_the_server_ever_takes(model, tokenizer):
    reply = serve(model, tokenizer, lambda c, _: c.complete(prompt=["a"] * 4), max_queue=1)
    assert reply.status == 400
    assert "3 at once" in reply.json["error"]["message"]


def test_prompt_outside_the_vocabulary(model, tokenizer):
    reply = serve(model, tokenizer, lambda c, _: c.complete(prompt=[VOCAB]))
    assert reply.status == 400


def test_chat_without_a_template(model, folder, tmp_path):
    from specsim.decoder.tokenizer import Tokenizer

    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())

    async def work(client, _):
        return await client.post("/v1/chat/completions",
                                 {"messages": [{"role": "user", "content": "hi"}]})

    reply = serve(model, Tokenizer(tmp_path), work)
    assert reply.status == 400
    assert "template" in reply.json["error"]["message"]
