#!/usr/bin/env python3
"""What one op of a prompt costs the host of an engine that runs prompts eagerly, without any TTFT.

    prompt_ops.py

Runs of SGLang's cookbook state the mean time per output token and the median gap between tokens.
The gap of most steps holds no prompt; the mean holds those of the other N - 1 clients, each once
per answer of O tokens. So one prompt takes

    (mean TPOT - median ITL) (O - 1) / (N - 1)

beyond the decode step (one median ITL) during which its first launches went out already, and its
op (`Overheads.prompt_op_s`) that over the ops of the list, where the kernels alone are faster.
Short prompts with answers of some 500 tokens, 16 and 100 clients; the median of the models' medians
on NVIDIA's devices stands in `engines/sglang-0.5.toml` and is the prior of `fit_engines.py`.
"""

import re
import statistics
from collections import defaultdict

from common import PUBLISHED, read_csv

from specsim.accuracy.lookups import SkipRow
from specsim.accuracy.rows import published_case
from specsim.latency.shape import PrefillChunk, StepShape

LONGEST_PROMPT = 700
ANSWERS = range(150, 700)


def main() -> None:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read_csv(PUBLISHED):
        gap = re.search(r"mean TPOT; median ITL ([\d.]+)", row["notes"])
        if gap is None or not row["baseline_tpot_ms"]:
            continue
        try:
            case = published_case(row)
        except SkipRow:
            continue
        load, clients = case.workload, case.concurrency
        if clients < 2 or load.input_len > LONGEST_PROMPT or load.output_len not in ANSWERS:
            continue
        between_s = (float(row["baseline_tpot_ms"]) - float(gap[1])) / 1e3
        prompt_s = between_s * (load.output_len - 1) / (clients - 1)
        launch_s = prompt_s + float(gap[1]) / 1e3
        model = case.system.latency
        shape = StepShape(prefill=(PrefillChunk(load.input_len),))
        over = case.system.engine.overheads
        bare = model.with_overheads(type(over)()).seconds(shape)
        if prompt_s > bare:
            launches = sum(
                t.op.count * getattr(t.op.shape, "launches", 1)
                for t in model.step(shape).ops if t.phase == "target"
            )
            profile = case.system.profile
            vendor = "amd" if profile.name.startswith("mi") else "nvidia"
            found[vendor, f"{case.system.spec.name} on {profile.name}"].append(launch_s / launches)
    medians = {name: statistics.median(values) for name, values in found.items()}
    for vendor in ("nvidia", "amd"):
        mine = {name[1]: value for name, value in medians.items() if name[0] == vendor}
        for name, value in sorted(mine.items(), key=lambda item: item[1]):
            print(f"{value * 1e6:6.1f} us  {name} ({len(found[vendor, name])} runs)")
        print(f"{vendor}, median of {len(mine)}: {statistics.median(mine.values()) * 1e6:.1f} us")


if __name__ == "__main__":
    main()
