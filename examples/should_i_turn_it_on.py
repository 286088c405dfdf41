"""Should speculative decoding be on for this service? One table over the load, one sentence.

    python examples/should_i_turn_it_on.py qwen3.6-27b --weights fp8 --gpu h200-sxm
"""

import argparse

import specsim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="qwen3.6-27b")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--gpu", default="h200-sxm")
    parser.add_argument("--busiest", type=int, default=64, help="clients in the busiest hour")
    options = parser.parse_args()

    loads = sorted({1, 4, 16, options.busiest})
    result = specsim.predict(
        options.model, weights=options.weights, gpu=options.gpu, concurrency=loads
    )
    print(f"{'clients':>8} {'speedup':>8} {'90 %':>12} {'ms/token':>9} {'without':>8}")
    for point in result.points:
        low, high = point.interval_90["speedup"] or (None, None)
        known = "-" if low is None else f"{low:.2f}-{high:.2f}"
        print(
            f"{point.concurrency:8g} {point.speedup:8.2f} {known:>12} "
            f"{1e3 * point.tpot_s:9.1f} {1e3 * point.baseline_tpot_s:8.1f}"
        )
    stops = result.break_even_concurrency
    if stops is None:
        print("Leave it on: it pays at every load this deployment can run.")
    elif stops > options.busiest:
        print(f"Leave it on: it stops paying only at {stops} clients.")
    elif stops == 1:
        print("Leave it off: it does not pay, not even for one client.")
    else:
        print(f"It depends: above {stops} clients plain decoding is faster.")


if __name__ == "__main__":
    main()
