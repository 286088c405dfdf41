"""`specsim serve` at its limit and under attack: what is served and refused, latency, memory.

    python benchmarks/serve_soak.py --model FOLDER --minutes 30

Starts a server with few slots and a short queue, and beside it, all from one address:

    users       more requests at once than fit, sampled with drafts, streamed and not; a third
                leave in the middle of their answer, the others come again after a 429
    attackers   connections that send nothing, half a head or half a body; 1 MB prompts; bytes that
                are no HTTP; streams that are never read
    probes      a small request and /health, each again 0.1 s after its answer

First the probes alone, then with the attackers, then with the users, then all three for the rest of
the time; each group is a process of its own.
At the end everybody leaves, and the server must have nothing left open. Times are of this machine.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import Queue
from pathlib import Path
from urllib.request import urlopen

SLOTS, QUEUE, USERS = 4, 16, 40
HALF_OPEN, HOGS, DEAF, NOISE = 1500, 8, 8, 4
HEAD = ("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Connection: close\r\n")
UNFINISHED = ("", "GET /health HT", HEAD, HEAD + "Content-Length: 900\r\n\r\n{")


@dataclass
class Tally:
    """What happened in one phase. latencies_s: of probes that were answered, by path."""

    counts: Counter[str] = field(default_factory=Counter)
    latencies_s: dict[str, list[float]] = field(default_factory=dict)


def request(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    return f"{HEAD}Content-Length: {len(data)}\r\n\r\n".encode() + data


@contextlib.asynccontextmanager
async def connected(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(port: int, sent: bytes, leave_after: int = 0) -> int:
    """The status of a request whose answer is read to its end, or for leave_after bytes; 0 where
    the connection was lost."""
    try:
        async with connected(port) as (reader, writer):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            await (reader.read(leave_after) if leave_after else reader.read())
            return int(head.split()[1])
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return 0


async def user(port: int, tally: Tally, rng: random.Random) -> None:
    while True:
        text = "".join(rng.choices("abcde ", k=rng.randrange(5, 200)))
        body: dict[str, object] = {
            "prompt": text, "max_tokens": rng.randrange(1, 200), "ignore_eos": True,
            "temperature": rng.choice([0, 1]), "seed": rng.randrange(5),
            "stream": rng.random() < 0.7}
        leaving = rng.random() < 1 / 3
        status = await answer(port, request(body), rng.randrange(1, 2000) if leaving else 0)
        words = {200: "left" if leaving else "served", 429: "refused", 0: "lost"}
        tally.counts[f"users {words.get(status, status)}"] += 1
        if status != 200:
            await asyncio.sleep(rng.uniform(0.1, 0.5))


async def half_open(port: int, tally: Tally, rng: random.Random) -> None:
    while True:
        with contextlib.suppress(OSError):
            async with connected(port) as (reader, writer):
                writer.write(rng.choice(UNFINISHED).encode())
                await reader.read()
                tally.counts["half-open connections cut off"] += 1
        await asyncio.sleep(rng.uniform(5, 15))


async def hog(port: int, tally: Tally, rng: random.Random) -> None:
    sent = request({"prompt": "a b " * 250_000, "max_tokens": 1})
    while True:
        status = await answer(port, sent)
        tally.counts[f"1 MB prompts answered {status}"] += 1
        await asyncio.sleep(1)


async def deaf(port: int, tally: Tally, rng: random.Random) -> None:
    body = request({"prompt": "ab", "max_tokens": 200, "stream": True, "ignore_eos": True,
                    "stream_options": {"continuous_usage_stats": True}})
    while True:
        with contextlib.suppress(OSError):
            async with connected(port) as (reader, writer):
                reader._transport.pause_reading()  # a reader that does not read
                writer.write(body)
                await asyncio.sleep(rng.uniform(5, 60))
                tally.counts["unread streams"] += 1


async def noise(port: int, tally: Tally, rng: random.Random) -> None:
    while True:
        with contextlib.suppress(OSError):
            async with connected(port) as (reader, writer):
                writer.write(rng.randbytes(rng.randrange(1, 100_000)))
                await reader.read()
                tally.counts["noise"] += 1
        await asyncio.sleep(0.1)


async def probe(port: int, tally: Tally, path: str, sent: bytes) -> None:
    while True:
        started = time.perf_counter()
        status = await answer(port, sent)
        if status == 200:
            tally.latencies_s.setdefault(path, []).append(time.perf_counter() - started)
        else:
            tally.counts[f"probes of {path} answered {status}"] += 1
        await asyncio.sleep(0.1)


def group(name: str, port: int, seconds: float, results: "Queue[Tally]") -> None:
    """One group of clients in a process of its own, for some seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))

    async def run() -> None:
        tally = Tally()
        small = request({"prompt": "ab", "max_tokens": 4})
        health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        if name == "probes":
            who = [probe(port, tally, "/v1/completions", small),
                   probe(port, tally, "/health", health)]
        else:
            who = [kind(port, tally, random.Random(i)) for kind, count in GROUPS[name]
                   for i in range(count)]
        tasks = [asyncio.create_task(one) for one in who]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        results.put(tally)

    asyncio.run(run())


GROUPS = {"attackers": [(half_open, HALF_OPEN), (hog, HOGS), (deaf, DEAF), (noise, NOISE)],
          "users": [(user, USERS)]}


def phase(title: str, port: int, seconds: float, pid: int, *others: str) -> None:
    """The probes and other groups together; what happened, printed."""
    spawn = multiprocessing.get_context("spawn")
    results: Queue[Tally] = spawn.Queue()
    names = ("probes", *others)
    processes = [spawn.Process(target=group, args=(name, port, seconds, results), daemon=True)
                 for name in names]
    for process in processes:
        process.start()
    memory, tally = [size_of(pid)], Tally()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(min(5.0, seconds))
        memory.append(size_of(pid))
    for _ in names:
        found = results.get(timeout=seconds + 60)
        tally.counts += found.counts
        tally.latencies_s |= found.latencies_s
    print(f"{title}: {seconds:.0f} s")
    for path, times_s in sorted(tally.latencies_s.items()):
        times_s.sort()
        p50, p99 = (1e3 * times_s[int(share * (len(times_s) - 1))] for share in (0.5, 0.99))
        print(f"  {path} {len(times_s)} answered, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
              f"longest {1e3 * times_s[-1]:.1f} ms")
    for word, count in sorted(tally.counts.items()):
        print(f"  {word}: {count}")
    print(f"  server: {memory[0][0]} MiB and {memory[0][1]} files at the start, "
          f"{memory[-1][0]} MiB and {memory[-1][1]} files at the end, at most "
          f"{max(mib for mib, _ in memory)} MiB", flush=True)


def size_of(pid: int) -> tuple[int, int]:
    """(resident MiB, open files) of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) // 1024 if found else 0, len(os.listdir(f"/proc/{pid}/fd"))


def whole(model: str, minutes: float) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "specsim", "serve", "--model", model, "--draft", "suffix",
         "--dtype", "fp32", "--port", "0", "--threads", "1", "--max-num-seqs", str(SLOTS),
         "--max-queue", str(QUEUE), "--max-model-len", "500", "--log-interval", "0"],
        stderr=subprocess.PIPE, text=True)
    try:
        port, line = 0, "x"
        while not port and line:
            line = server.stderr.readline()
            port = int(found[1]) if (found := re.search(r"http://127.0.0.1:(\d+)", line)) else 0
        before = size_of(server.pid)
        left_s = 60 * minutes
        phase("alone", port, 0.05 * left_s, server.pid)
        phase("attack", port, 0.15 * left_s, server.pid, "attackers")
        phase("at the limit", port, 0.1 * left_s, server.pid, "users")
        phase("attack at the limit", port, 0.7 * left_s, server.pid, "users", "attackers")
        time.sleep(15)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        for name in ("num_requests_running", "num_requests_waiting", "admission_rejections_total"):
            print(f"afterwards {name}: {re.search(name + r'{.*} (.*)', text)[1]}")
        after = size_of(server.pid)
        print(f"afterwards {after[0]} MiB and {after[1]} files; before the first request "
              f"{before[0]} MiB and {before[1]} files")
        server.terminate()
        print(f"exit status {server.wait(30)}")
        print("standard error:", server.stderr.read()[-2000:] or "nothing")
    finally:
        server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--minutes", type=float, default=30.0)
    asked = parser.parse_args()
    whole(asked.model, asked.minutes)


if __name__ == "__main__":
    main()
