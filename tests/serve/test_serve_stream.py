"""Streams, queues, clients that leave, and the ends of a server."""

import asyncio

import pytest

from serve_helpers import make_engine, make_service, running, until
from specsim.decoder.engine import Engine
from specsim.decoder.options import SamplingParams
from specsim.formats.spec_log import parse_spec_log
from specsim.serve.app import LogLines

PROMPT = "ab ab ab"
BODY = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}


def serve(engine, tokenizer, work, **settings):
    service = make_service(engine, tokenizer, **settings)

    async def go():
        async with running(service) as client:
            return await work(client, service)

    return asyncio.run(go())


def test_a_stream_has_one_chunk_per_step_and_ends_in_order(model, tokenizer):
    async def work(client, _):
        return (await client.complete(**BODY)).json, await client.complete(**BODY, stream=True)

    whole, reply = serve(make_engine(model), tokenizer, work)
    want = make_engine(model).generate([tokenizer.encode(PROMPT)], SamplingParams(max_tokens=20))[0]
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in reply.headers
    *chunks, done = reply.events
    assert done is None
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole["choices"][0]["text"]
    assert len(chunks) == 1 + len(want.steps)
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * len(want.steps) + [
        "length"]
    assert len({c["id"] for c in chunks}) == 1
    assert not any("usage" in c for c in chunks)


def test_usage_comes_last_when_asked_for(model, tokenizer):
    async def work(client, _):
        return await client.complete(**BODY, stream=True, stream_options={"include_usage": True})

    *chunks, usage, done = serve(make_engine(model), tokenizer, work).events
    assert done is None
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 8, "completion_tokens": 20, "total_tokens": 28}
    assert all(c["usage"] is None for c in chunks)


def test_usage_in_every_chunk_counts_up(model, tokenizer):
    async def work(client, _):
        return await client.complete(**BODY, stream=True,
                                     stream_options={"continuous_usage_stats": True})

    *chunks, _ = serve(make_engine(model), tokenizer, work).events
    counts = [c["usage"]["completion_tokens"] for c in chunks]
    lengths = [len(tokenizer.encode(c["choices"][0]["text"])) for c in chunks]
    assert counts == [sum(lengths[: i + 1]) for i in range(len(lengths))]
    assert counts[-1] == 20


def test_chat_names_the_role_once(model, tokenizer):
    async def work(client, _):
        return await client.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "temperature": 0,
            "stream": True})

    *chunks, _ = serve(make_engine(model), tokenizer, work).events
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert [("role" in d) for d in deltas] == [True] + [False] * (len(deltas) - 1)
    assert all(c["object"] == "chat.completion.chunk" for c in chunks)


def test_answers_of_one_stream_come_side_by_side(model, tokenizer):
    async def work(client, _):
        return await client.complete(prompt=["ab ab ab", "xyz"], max_tokens=20, temperature=0,
                                     stream=True)

    *chunks, _ = serve(make_engine(model), tokenizer, work).events
    order = [c["choices"][0]["index"] for c in chunks]
    assert set(order) == {0, 1}
    assert order.index(1) < len(order) - 1 - order[::-1].index(0), "the second waited for the first"
    ends = [c["choices"][0]["index"] for c in chunks if c["choices"][0]["finish_reason"]]
    assert sorted(ends) == [0, 1]


def test_tokens_are_sent_as_they_are_made_while_the_engine_is_busy(model, tokenizer):
    engine = make_engine(model, method="none", k=0, closed=True)

    async def work(client, _):
        call = client.open("/v1/completions", BODY | {"stream": True})
        await asyncio.wait_for(call.reply.started.wait(), 5)
        seen = []
        for _ in range(3):
            engine.permit(1)
            seen.append(await call.reply.part())
        # The engine stands still now, and the server answers all the same.
        health = await client.get("/health")
        assert not call.reply.ended.is_set()
        engine.open()
        reply = await call.done()
        return seen, health, reply

    seen, health, reply = serve(engine, tokenizer, work)
    assert health.status == 200
    assert len(seen) == 3
    assert all(part.startswith(b"data: ") for part in seen)
    assert len(reply.events) == 21


def test_requests_beyond_slots_and_queue_get_429(model, tokenizer):
    engine = make_engine(model, max_num_seqs=1, closed=True)

    async def work(client, service):
        calls = [client.open("/v1/completions", BODY) for _ in range(3)]
        await until(lambda: service.thread.num_open == 3)
        refused = await client.complete(**BODY)
        pair = await client.complete(**BODY | {"prompt": ["a", "b"]})
        engine.permit(1)
        await until(lambda: engine.num_running == 1)
        busy = await client.metrics()
        engine.open()
        done = [await call.done() for call in calls]
        again = await client.complete(**BODY)
        return refused, pair, busy, done, again, await client.metrics()

    refused, pair, busy, done, again, after = serve(engine, tokenizer, work, max_queue=2)
    for reply in (refused, pair):
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json["error"]["type"] == "rate_limit_error"
    assert busy["num_requests_running"] == 1
    assert busy["num_requests_waiting"] == 2
    assert busy["kv_cache_usage_perc"] == 1.0
    assert [reply.status for reply in (*done, again)] == [200] * 4
    assert after["admission_rejections_total"] == 2
    assert after["request_success_total", "length"] == 4
    assert after["num_requests_waiting"] == 0


@pytest.mark.parametrize(("came_before_s", "first"), [(0.0, "short"), (30.0, "long")])
def test_a_short_request_passes_long_ones_that_have_not_waited_long(
    model, tokenizer, came_before_s, first
):
    """At 20 ms a token 100 tokens are patient for 20 s, 5 for one."""
    engine = make_engine(model, max_num_seqs=1, closed=True)

    async def work(client, service):
        service.thread._token_s = 0.02
        ended, calls = [], []
        now = engine.clock()
        for name, arrival_s, tokens in (
            ("running", now, 20), ("long", now - came_before_s, 100), ("short", now, 5),
        ):
            engine.clock = lambda arrival_s=arrival_s: arrival_s
            calls.append(client.open("/v1/completions", BODY | {"max_tokens": tokens}))
            await until(lambda: service.thread.num_open == len(calls))
            calls[-1].task.add_done_callback(lambda _, name=name: ended.append(name))
            if name == "running":
                engine.permit(1)
                await until(lambda: engine.num_running == 1)
        engine.open()
        for call in calls:
            assert (await call.done()).status == 200
        return ended

    assert serve(engine, tokenizer, work)[1] == first


def test_a_request_of_several_sequences_is_admitted_whole_or_not_at_all(model, tokenizer):
    engine = make_engine(model, max_num_seqs=1, closed=True)

    async def work(client, service):
        first = client.open("/v1/completions", BODY)
        await until(lambda: service.thread.num_open == 1)
        refused = await client.complete(**BODY | {"prompt": ["a", "b"]})
        assert service.thread.num_open == 1
        engine.open()
        return refused, await first.done()

    refused, first = serve(engine, tokenizer, work, max_queue=1)
    assert (refused.status, first.status) == (429, 200)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot(model, tokenizer, stream):
    engine = make_engine(model, max_num_seqs=1, closed=True)

    async def work(client, service):
        running_call = client.open("/v1/completions", BODY | {"stream": stream})
        await until(lambda: service.thread.num_open == 1)
        waiting_call = client.open("/v1/completions", BODY | {"stream": stream})
        staying = client.open("/v1/completions", BODY)
        await until(lambda: service.thread.num_open == 3)
        engine.permit(2)
        await until(lambda: engine.stats.num_generation_tokens > 0)
        running_call.leave()
        waiting_call.leave()
        await running_call.done()
        await waiting_call.done()
        engine.open()
        reply = await staying.done()
        await until(lambda: service.thread.num_open == 0 and not engine.has_work)
        engine.check_integrity()
        return reply, await client.metrics()

    reply, metrics = serve(engine, tokenizer, work)
    assert reply.json["usage"]["completion_tokens"] == 20
    assert metrics["request_success_total", "abort"] == 2
    assert metrics["request_success_total", "length"] == 1
    assert metrics["e2e_request_latency_seconds_count"] == 1
    assert engine.stats.num_generation_tokens < 40, "an abandoned request ran to its end"


def test_a_client_that_leaves_before_its_body_is_whole(model, tokenizer):
    async def work(client, service):
        call = client.open("/v1/completions", None, parts=[(b'{"prompt"', True)])
        call.leave()
        await call.done()
        assert service.thread.num_open == 0
        return await client.complete(**BODY)

    assert serve(make_engine(model), tokenizer, work).status == 200


def test_draining_finishes_what_runs_and_refuses_the_rest(model, tokenizer):
    engine = make_engine(model, closed=True)

    async def work(client, service):
        call = client.open("/v1/completions", BODY | {"stream": True})
        await until(lambda: service.thread.num_open == 1)
        service.draining = True
        refused, health = await client.complete(**BODY), await client.get("/health")
        engine.open()
        return refused, health, await call.done()

    refused, health, reply = serve(engine, tokenizer, work)
    assert (refused.status, health.status) == (503, 503)
    assert refused.json["error"]["code"] == "shutting_down"
    assert refused.headers["connection"] == "close"
    assert reply.events[-2]["choices"][0]["finish_reason"] == "length"


def test_what_still_runs_at_the_end_is_aborted_and_says_so(model, tokenizer):
    engine = make_engine(model, max_num_seqs=1, closed=True)

    async def work(client, service):
        calls = [client.open("/v1/completions", BODY | {"stream": True}) for _ in range(2)]
        await until(lambda: service.thread.num_open == 2)
        engine.permit(2)
        await until(lambda: engine.stats.num_generation_tokens > 0)
        service.thread.cancel_all()
        engine.open()
        return [await call.done() for call in calls]

    for reply in serve(engine, tokenizer, work):
        assert reply.events[-1] is None
        assert reply.events[-2]["choices"][0]["finish_reason"] == "abort"


def test_stopping_the_thread_ends_every_request(model, tokenizer):
    engine = make_engine(model, closed=True)

    async def work(client, service):
        call = client.open("/v1/completions", BODY)
        await until(lambda: service.thread.num_open == 1)
        engine.permit(1)
        await until(lambda: engine.num_running == 1)
        stop = asyncio.create_task(service.thread.stop())
        await asyncio.sleep(0.01)
        engine.open()
        await stop
        return await call.done()

    reply = serve(engine, tokenizer, work)
    assert reply.json["choices"][0]["finish_reason"] == "abort"


def test_a_failing_engine_answers_everyone_and_turns_the_server_off(model, tokenizer):
    engine = make_engine(model, closed=True)

    async def work(client, service):
        failed = asyncio.Event()
        service.when_failed.append(failed)
        calls = [client.open("/v1/completions", BODY | {"stream": s}) for s in (False, True)]
        await until(lambda: service.thread.num_open == 2)
        engine.fail = True
        engine.open()
        whole, stream = [await call.done() for call in calls]
        assert failed.is_set()
        return whole, stream, await client.complete(**BODY), await client.get("/health")

    whole, stream, later, health = serve(engine, tokenizer, work)
    assert whole.status == 500
    assert whole.json["error"]["type"] == "server_error"
    assert "out of luck" in whole.json["error"]["message"]
    assert stream.status == 200, "the stream had begun"
    assert "out of luck" in stream.events[0]["error"]["message"]
    assert stream.events[-1] is None
    assert (later.status, health.status) == (503, 503)


def test_log_lines_are_read_back_as_vllms(model, tokenizer):
    engine = make_engine(model)

    async def work(client, service):
        lines = LogLines(service.thread)
        quiet = lines.since_last()
        await client.complete(**BODY | {"max_tokens": 60})
        return quiet, lines.since_last(), lines.since_last()

    quiet, lines, after = serve(engine, tokenizer, work)
    assert quiet == after == []
    (interval,) = parse_spec_log("\n".join(lines), "log")
    stats = engine.stats
    assert interval.accepted_tokens == stats.num_accepted_tokens
    assert interval.draft_tokens == stats.num_draft_tokens
    assert interval.acceptance_length == pytest.approx(stats.acceptance_length, abs=0.0051)
    assert interval.per_position == pytest.approx(
        [n / stats.num_drafts for n in stats.accepted_per_position], abs=0.0006)
    assert interval.generation_tok_s > 0


def test_an_idle_engine_sleeps(model, tokenizer, monkeypatch):
    asked, has_work = [], Engine.has_work.fget
    monkeypatch.setattr(
        Engine, "has_work", property(lambda engine: asked.append(1) or has_work(engine)))

    async def work(client, _):
        await client.complete(**BODY)
        while_it_ran = len(asked)
        await asyncio.sleep(0.4)
        return while_it_ran, len(asked) - while_it_ran

    while_it_ran, idle = serve(make_engine(model), tokenizer, work)
    assert while_it_ran > 2 and idle < 3, "the idle thread keeps a core busy"
