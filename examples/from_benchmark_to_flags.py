"""From two benchmark files of your own server to the flags it should run with.

    python examples/from_benchmark_to_flags.py plain.json spec.json MODEL --gpu GPU --method ngram

The files are results of `vllm bench serve` (or another tool that `specsim import` reads) of one
server, once without speculation and once with it.
"""

import argparse
from pathlib import Path

import specsim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plain", type=Path)
    parser.add_argument("spec", type=Path)
    parser.add_argument("model")
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--method", default="ngram")
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("my-engine.toml"))
    options = parser.parse_args()

    runs = specsim.read_bench(options.plain, options.spec)
    for run in runs:
        print(f"{run.source}: {1e3 * run.tpot_s.mean:.1f} ms per token")

    fitted = specsim.calibrate(
        options.model,
        from_=[options.plain, options.spec],
        gpu=options.gpu,
        method=options.method,
        k=options.k,
        out=options.out,
    )
    for row in fitted.parameters:
        if row["moved"]:
            print(f"{row['name']}: {row['before']:.4g} -> {row['value']:.4g}")

    accepted = runs[1].acceptance
    if accepted is None:
        raise SystemExit(f"{options.spec} holds no acceptance")
    share = runs[1].draft_share
    choice = specsim.tune(
        options.model,
        gpu=options.gpu,
        engine=str(options.out),
        method=options.method,
        k=options.k,
        acceptance=accepted.per_position,
        draft_share=1.0 if share is None else share,
        concurrency=[1, 4],
    )
    for answer in choice.answers:
        print(f"at {answer.load.label}: {answer.best.method}, k = {answer.best_k}")
        print(answer.flags.command if answer.flags else answer.no_flags)


if __name__ == "__main__":
    main()
