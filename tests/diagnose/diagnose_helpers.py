"""Deployments priced by the real model, evidence of servers that behave as predicted, and a small
HTTP server with /metrics that tests change as they like."""

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.diagnose.evidence import Evidence
from specsim.diagnose.expected import Predictor
from specsim.options.groups import DeploymentOptions as Options

CHAT = Workload(1024, 256)
GOOD = (0.8, 0.65, 0.52)


@lru_cache(maxsize=32)
def system(model="llama-3.1-8b", gpu="h100", method="eagle3", k=3, **options):
    """A deployment; its acceptance is a stand-in that evidence replaces."""
    chosen = Options(model=model, gpu=gpu, method=method, k=k, acceptance_length=2.0, **options)
    return build_request(chosen).system


def predictor(*args, workload=CHAT, **options):
    return Predictor(system(*args, **options), workload)


def evidence(running, rates=GOOD, **values):
    """A vLLM server with this batch and acceptance; steps and prompts unremarkable."""
    length = 1 + sum(rates)
    known = {
        "source": "test", "format": "metrics (vllm)", "engine": "vllm",
        "running": float(running),
        "running_from": "steps", "waiting": 0.0, "kv_cache_usage": 0.3, "preemptions": 0,
        "num_speculative_tokens": len(rates), "per_position": tuple(rates),
        "acceptance_length": length,
        "acceptance_rate": sum(rates) / len(rates), "tokens_per_step": length, "num_drafts": 50_000,
        "draft_share": 1.0, "ttft_s": 0.2, "queue_s": 0.001, "input_len": 1024.0,
        "output_len": 256.0,
        "output_tokens": 100_000, "live": True,
    }
    return Evidence(**(known | values))


def as_predicted(found, predict, factor=1.0):
    """The same evidence with the step time that the model predicts, times a factor."""
    step = predict.expect(found).itl_s * factor
    return replace(found, step_s=step, step_from="inter_token_latency_seconds",
                   tpot_s=step / found.tokens_per_step)


def rules(diagnosis):
    return {finding.rule: finding for finding in diagnosis.findings}


class Counters:
    """vLLM's /metrics of a made-up server; `work` lets it run steps."""

    def __init__(self, k=3):
        self.k = k
        self.running, self.waiting, self.kv = 8.0, 0.0, 0.4
        self.values = dict.fromkeys(
            ("drafts", "drafted", "accepted", "tokens", "prompt", "steps", "gaps", "firsts",
             "done"), 0.0)
        self.gap_s = 0.0
        self.per_pos = [0.0] * k
        self.start = 1000.0

    def work(self, steps, *, batch=8, rates=GOOD, step_s=0.015, requests=0):
        v = self.values
        rows = steps * batch
        if self.k:
            v["drafts"] += rows
            v["drafted"] += rows * self.k
            v["accepted"] += rows * sum(rates)
            for i, rate in enumerate(rates):
                self.per_pos[i] += rows * rate
        v["tokens"] += rows * (1 + (sum(rates) if self.k else 0)) + requests
        v["prompt"] += 1024 * requests
        v["steps"] += steps
        v["gaps"] += rows
        v["firsts"] += requests
        v["done"] += requests
        self.gap_s += rows * step_s

    def restart(self):
        self.__init__(self.k)
        self.start = 2000.0

    def text(self):
        v, label = self.values, '{engine="0",model_name="m"}'
        lines = [f"process_start_time_seconds {self.start}"]
        names = {"prompt_tokens": "prompt", "generation_tokens": "tokens"}
        if self.k:
            names |= {"spec_decode_num_drafts": "drafts",
                      "spec_decode_num_draft_tokens": "drafted",
                      "spec_decode_num_accepted_tokens": "accepted"}
        for name, key in names.items():
            lines += [f"# TYPE vllm:{name}_total counter", f"vllm:{name}_total{label} {v[key]}"]
        for i, value in enumerate(self.per_pos):
            lines.append("vllm:spec_decode_num_accepted_tokens_per_pos_total"
                         f'{{engine="0",model_name="m",position="{i}"}} {value}')
        lines.append('vllm:request_success_total{engine="0",model_name="m",'
                     f'finished_reason="length"}} {v["done"]}')
        for name, value in (("num_requests_running", self.running),
                            ("num_requests_waiting", self.waiting),
                            ("kv_cache_usage_perc", self.kv)):
            lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{label} {value}"]
        for name, count, total in (
            ("inter_token_latency_seconds", v["gaps"], self.gap_s),
            ("time_to_first_token_seconds", v["firsts"], 0.2 * v["firsts"]),
            ("iteration_tokens_total", v["steps"], v["tokens"]),
        ):
            lines += [f"# TYPE vllm:{name} histogram",
                      f'vllm:{name}_bucket{{engine="0",le="+Inf",model_name="m"}} {count}',
                      f"vllm:{name}_count{label} {count}", f"vllm:{name}_sum{label} {total}"]
        return "\n".join(lines) + "\n"


@contextmanager
def serving(answer):
    """A server on 127.0.0.1 whose GET /metrics gives answer(): text, or (status, headers, bytes).
    Yields (url, list of (method, path) seen)."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.command, self.path))
            found = answer()
            status, headers, body = (200, {}, found.encode()) if isinstance(found, str) else found
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # a client that has had enough
                self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()
