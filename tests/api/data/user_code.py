"""What a user writes with every function of specsim, for type checkers; it is never run."""

from pathlib import Path

import specsim


def decide(model: str) -> str:
    found = specsim.predict(model, weights="fp8", gpu="h200-sxm", concurrency=[1, 16], k=2)
    best: int | None = found.best_k
    rate: float = found.points[0].stream_tok_s
    pair: list[float] | None = found.points[0].interval_90["speedup"]
    usable: float = found.memory["usable_bytes"]
    choice = specsim.tune(model, concurrency=(1, 64), slo={"ttft_mean": 2.0}, methods=["mtp"])
    for answer in choice.answers:
        if answer.best is not None and answer.flags is not None:
            print(answer.concurrency, answer.best_method, answer.flags.command)
    curve = specsim.crossover(model, contexts=range(1024, 4096, 1024)).curves[0]
    limit: int | None = curve.break_even_concurrency
    return f"{found.gpu} {found.engine} {best} {rate} {pair} {usable} {limit}"


def plan(model: str, folder: Path) -> None:
    points = specsim.pareto(model, ks=[0, 3], tps=[1, 2], weights=["bf16", "fp8"])
    gpus: int = points.frontier[0].gpus
    cells = specsim.matrix(models=[model], gpus=["h200-sxm", "b200"]).cells
    fits: bool = cells[0].fits
    room = specsim.capacity(model, unit="rate", slo={"ttft_p95": 1.0}, jobs=1)
    most: float = room.capacity
    safe: float = room.sure_pass
    pool = specsim.fleet(file=folder / "fleet.toml", quick=True)
    short: float = sum(endpoint.short for endpoint in pool.endpoints)
    ranked = specsim.compare(file=folder / "deployments.toml")
    best: str = ranked.loads[0].ranked[0].name
    rows = specsim.sweep(set_=[f"model={model}"], grid=["k=1,2"]).rows
    print(gpus, fits, most, safe, short, best, rows[0]["params"])


def look(model: str) -> None:
    run = specsim.simulate(model, rate=2, requests=20, baseline=True)
    tail: float | None = run.ttft_s["p95"]
    policies = specsim.policies(model, concurrency=4, policy=["static", "goodput"])
    best: str = policies.best
    step = specsim.explain(model, concurrency=8).steps[0]
    share: float = step.memory_s / step.total_s
    size: float = specsim.models(model).weight_bytes
    names: list[str] = [entry.name for entry in specsim.models(search="qwen")]
    peak: float = specsim.gpus("h200-sxm").mem_bytes_per_s
    devices: list[str] = [profile.name for profile in specsim.gpus()]
    print(tail, best, share, size, names, peak, devices, run.baseline, run.gain)


def check(model: str, folder: Path) -> Path:
    runs = specsim.read_bench(folder / "plain.json", folder / "spec.json")
    found = specsim.diagnose(words=[str(folder / "spec.json"), model])
    print(found.diagnoses[0]["verdict"], [run.source for run in runs])
    fitted = specsim.calibrate(model, from_=[folder / "plain.json"], out=folder / "mine.toml")
    bench = specsim.validate_bench(
        files=[folder / "plain.json"], model=model, engine=str(folder / "mine.toml")
    )
    live = specsim.validate_live(model=model, url="http://127.0.0.1:8000")
    seen = specsim.quick(url="http://127.0.0.1:8000", seconds=5, watch_only=True)
    records = specsim.validate_records(files=[folder / "records.jsonl"], gpu="mine.toml")
    published = specsim.validate_published(files=[folder / "rows.csv"])
    errors = [bench.summary, live.summary, records.summary, published.overall]
    print(fitted.parameters, errors, bench.to_frame(), seen.verdict, seen.loads)
    return specsim.report(bench, fitted, output=folder / "report.html", title="My server")


def careful(model: str) -> specsim.Prediction | None:
    try:
        return specsim.predict(model)
    except specsim.SpecSimError as error:
        print(error, specsim.__version__)
        return None
