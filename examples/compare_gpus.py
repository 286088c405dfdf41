"""The same model on several GPUs: which gives a token soonest, which most of them, as a data frame.

    python examples/compare_gpus.py            (needs pandas or polars for the table)
"""

import specsim

MODEL = "llama-3.1-8b"
GPUS = ("h100-sxm", "h200-sxm", "b200", "l40s")


def main() -> None:
    rows = []
    for gpu in GPUS:
        try:
            result = specsim.predict(MODEL, gpu=gpu, concurrency=[1, 32])
        except specsim.SpecSimError as error:  # the model may not fit
            print(f"{gpu}: {error}")
            continue
        for point in result.points:
            rows.append(
                {
                    "gpu": gpu,
                    "clients": point.concurrency,
                    "tokens/s per user": round(point.stream_tok_s),
                    "tokens/s": round(point.output_tok_s),
                    "speedup": round(point.speedup, 2),
                    "best k": point.best_k,
                }
            )
    try:
        import pandas
    except ImportError:
        for row in rows:
            print(row)
        return
    print(pandas.DataFrame(rows).pivot(index="gpu", columns="clients").to_string())


if __name__ == "__main__":
    main()
