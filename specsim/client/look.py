"""What a server says of itself before anything is sent to it, and which one there is to ask.

Only GETs: /v1/models, /version, /metrics, and SGLang's /server_info. What is missing or is not what
it should be stays unknown.
"""

import asyncio
from dataclasses import dataclass

from specsim.client.http import Connection, Target, connect, run_to_end
from specsim.client.metrics import Scraper
from specsim.errors import ServerError
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.metrics_text import Snapshot
from specsim.formats.server_flags import told_command

PORTS = {8000: "vLLM", 30000: "SGLang", 8001: "a second vLLM", 8080: "others"}
FOUND_S = 3.0  # a local server answers /v1/models within this
STALL_S, REQUEST_S = 30.0, 300.0  # for the next piece of an answer, and for all of it
OWN = "specsim"  # owner of the models of `specsim serve`


@dataclass(frozen=True)
class ServerLook:
    """name: of the model in requests. path: where its weights are from, as far as it is told.
    command: the flags it tells, as a command line, '' for none. metrics: None without /metrics.
    others: further servers that were found."""

    target: Target
    name: str
    path: str
    engine: str
    version: str
    command: str
    metrics: Snapshot | None
    others: tuple[str, ...] = ()


def look(url: str | None, key: str) -> ServerLook:
    """The server at `url`, or the first on a usual local port. ServerError where there is none."""
    return run_to_end(_look(url, key))


async def _look(url: str | None, key: str) -> ServerLook:
    others: tuple[str, ...] = ()
    if url is None:
        url, *others_found = await _find(key)
        others = tuple(others_found)
    elif "://" not in url:
        url = f"http://{url}"
    target = Target(url, key, stall_s=STALL_S, request_s=REQUEST_S)
    async with connect(target) as connection:
        name = (await connection.models())[0]
        item = await _first_model(connection)
        owner, path = (_text(item.get(field)) for field in ("owned_by", "root"))
        scraper = Scraper(connection, 0.0)
        await scraper.before()
        metrics = scraper.first
        engine = (run_of(metrics).engine if metrics is not None else owner) or ""
        if owner == OWN:
            engine = OWN
        version = await connection.version()
        facts = _cache_labels(metrics) if metrics is not None else {}
        facts["max_model_len"] = item.get("max_model_len")
        if engine == "sglang" or not engine:
            facts = await connection.told("/server_info") or await connection.told(
                "/get_server_info")
            engine = "sglang" if facts.get("model_path") else engine
            path = _text(facts.get("model_path")) or path
            version = version or _text(facts.get("version"))
    command = told_command(engine, path or name, facts)
    return ServerLook(target, name, path, engine, version, command, metrics, others)


async def _find(key: str) -> list[str]:
    """Addresses of all that serve models on a usual port of this machine."""

    async def answers(port: int) -> str | None:
        target = Target(f"http://127.0.0.1:{port}", key)
        try:
            async with asyncio.timeout(FOUND_S), connect(target) as connection:
                await connection.models()
        except (ServerError, TimeoutError):
            return None
        return target.url

    found = await asyncio.gather(*map(answers, PORTS))
    urls = [url for url in found if url is not None]
    if not urls:
        ports = ", ".join(f"{port} ({whose})" for port, whose in PORTS.items())
        raise ServerError(
            f"no server with /v1/models answers on this machine's ports {ports}; give its address: "
            "specsim quick http://HOST:PORT (and --api-key-env NAME where it wants a key)"
        )
    return urls


async def _first_model(connection: Connection) -> dict[str, object]:
    """What /v1/models says of its first model."""
    data = (await connection.told("/v1/models")).get("data")
    first = data[0] if isinstance(data, list) and data else None
    return first if isinstance(first, dict) else {}


def _cache_labels(metrics: Snapshot) -> dict[str, object]:
    """Labels of vLLM's cache_config_info."""
    rows = metrics.gauge_values.get("vllm:cache_config_info", ())
    return dict(rows[0][0]) if rows else {}


def _text(value: object) -> str:
    return value[:200] if isinstance(value, str) else ""
