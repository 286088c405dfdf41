"""A small server that speaks OpenAI's streaming API in a thread, well or badly.

It answers every request with `output` tokens, `per_chunk` in each chunk after the first, a chunk
every `step_s`, and counts as vLLM counts. `fault` makes it misbehave.
"""

import asyncio
import json
import threading
import time
from contextlib import contextmanager

from aiohttp import web

FAULTS = ("", "429", "500", "stall", "cut", "error", "garbage", "huge", "no-usage", "html",
          "no-counts", "abort", "empty", "half")


class FakeServer:
    def __init__(self, fault="", per_chunk=1, step_s=0.002, k=3, metrics=True, max_tokens=12,
                 faults_from=1):
        self.fault, self.per_chunk, self.step_s, self.k = fault, per_chunk, step_s, k
        self.metrics, self.max_tokens, self.faults_from = metrics, max_tokens, faults_from
        self.bodies, self.arrived, self.open, self.most_open = [], [], 0, 0
        self.headers = []
        self.drafts = self.accepted = self.tokens = self.finished = self.steps = 0
        self.url = ""
        self.others = {"running": 0, "waiting": 0}  # requests of other people
        self.model, self.server_info = {"id": "tiny"}, None

    # --- the server ---------------------------------------------------------------------------
    @contextmanager
    def running(self):
        started, loop = threading.Event(), asyncio.new_event_loop()

        def work():
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self._start())
            # Only now: a stop that came before `run_forever` would be lost.
            loop.call_soon(started.set)
            loop.run_forever()
            loop.run_until_complete(self._runner.cleanup())
            loop.close()

        thread = threading.Thread(target=work)
        thread.start()
        assert started.wait(10)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(20)
            assert not thread.is_alive()

    async def _start(self):
        app = web.Application(client_max_size=10_000_000)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    async def _models(self, request):
        if self.fault == "html":
            return web.Response(text="<html>hello</html>", content_type="text/html")
        return web.json_response({"data": [self.model]})

    async def _server_info(self, request):
        if self.server_info is None:
            raise web.HTTPNotFound()
        return web.json_response(self.server_info)

    async def _version(self, request):
        return web.json_response({"version": "9.9.9"})

    async def _metrics(self, request):
        if not self.metrics:
            raise web.HTTPNotFound()
        lines = [
            f"vllm:num_requests_running {self.open + self.others['running']}.0",
            f"vllm:num_requests_waiting {self.others['waiting']}.0",
            'vllm:cache_config_info{cache_dtype="fp8",gpu_memory_utilization="0.8"} 1.0',
            f"vllm:generation_tokens_total {self.tokens}.0",
            f'vllm:request_success_total{{finished_reason="length"}} {self.finished}.0',
            f"vllm:inter_token_latency_seconds_count {self.steps}.0",
            f"vllm:inter_token_latency_seconds_sum {self.steps * self.step_s}",
            f"vllm:time_to_first_token_seconds_count {self.finished}.0",
            f"vllm:time_to_first_token_seconds_sum {self.finished * self.step_s}",
        ]
        if self.k and self.per_chunk > 1:
            lines += [
                f"vllm:spec_decode_num_drafts_total {self.drafts}.0",
                f"vllm:spec_decode_num_draft_tokens_total {self.drafts * self.k}.0",
                f"vllm:spec_decode_num_accepted_tokens_total {self.accepted}.0",
            ]
            for i in range(self.k):
                count = self.drafts if i < self.per_chunk - 1 else 0
                lines.append(
                    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {count}'
                )
        return web.Response(text="\n".join(lines) + "\n")

    async def _answer(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.arrived.append(time.perf_counter())
        # The first request warms up; faults begin behind it.
        fault = self.fault if len(self.bodies) > self.faults_from else ""
        if self.fault == "no-counts" and "continuous_usage_stats" in body["stream_options"]:
            return web.json_response({"error": {"message": "unknown field"}}, status=400)
        if fault == "429":
            return web.json_response({"error": {"message": "queue is full"}}, status=429)
        if fault == "500":
            return web.Response(status=500, text="oh no")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        try:
            await self._stream(reply, body, fault)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
        return reply

    async def _stream(self, reply, body, fault):
        chat = "messages" in body
        total = min(body["max_tokens"], self.max_tokens)
        counts = body["stream_options"].get("continuous_usage_stats") and fault != "no-usage"
        usage = {"prompt_tokens": 5, "completion_tokens": 0}

        async def send(text, reason=None):
            inner = {"delta": {"content": text}} if chat else {"text": text}
            event = {"choices": [inner | {"index": 0, "finish_reason": reason}]}
            if counts:
                event["usage"] = dict(usage)
            await reply.write(f"data: {json.dumps(event)}\n\n".encode())

        if chat:
            role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
            await reply.write(f"data: {json.dumps(role)}\n\n".encode())
        if fault == "empty":
            await reply.write(b"data: [DONE]\n\n")
            return
        given = 0
        while given < total:
            await asyncio.sleep(self.step_s)
            new = min(1 if given == 0 else self.per_chunk, total - given)
            self.steps += given > 0
            if given and self.per_chunk > 1:
                self.drafts += 1
                self.accepted += self.per_chunk - 1
            given += new
            self.tokens += new
            usage["completion_tokens"] = given
            if given >= total // 2:
                if fault == "stall":
                    await asyncio.sleep(30)
                if fault == "cut":
                    reply._payload_writer.transport.close()
                    return
                if fault == "half":
                    return
                if fault == "error":
                    await reply.write(b'data: {"error": {"message": "engine died"}}\n\n')
                    return
                if fault == "garbage":
                    await reply.write(b"data: {nonsense\n\n")
                    return
                if fault == "huge":
                    await reply.write(b"data: " + b"x" * 1_500_000 + b"\n\n")
                    return
            reason = "abort" if fault == "abort" else "length"
            await send("x" * new, reason if given >= total else None)
        self.finished += 1
        if fault != "no-usage":
            last = {"choices": [], "usage": usage}
            await reply.write(f"data: {json.dumps(last)}\n\n".encode())
        await reply.write(b"data: [DONE]\n\n")
