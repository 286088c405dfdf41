"""Fit the host's time of research code on transformers to Spec-Bench's table of speedups.

    python validation/scripts/fit_transformers.py

reads the rows SPECBENCH of `published_measurements.csv`: acceptance lengths and speedups of EAGLE,
EAGLE-2, EAGLE-3, Medusa and prompt lookup on three sizes of Vicuna, one client, two GPUs. Draft
lengths and trees are the defaults of the code that was measured. Tries a grid of three overheads:
what the host needs for an op of the list (several kernels and the Python around them), for keeping
the branches of a tree, and per step for verifying and copying. Prints the best, its errors by pair
of GPU and model, and those of each pair left out of the choice; `engines/transformers-5.toml` holds
the chosen three.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log
from statistics import mean, median

from common import PUBLISHED, read_csv

from specsim.analytic.compare import compared
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.options.groups import DeploymentOptions

GPUS = {"RTX 3090": "rtx-3090", "A100 80GB": "a100-80gb"}
METHODS: dict[str, dict[str, object]] = {
    "EAGLE": {"method": "eagle", "k": 5, "tree": (4, 26)},
    "EAGLE2": {"method": "eagle", "k": 6, "tree": (10, 60)},
    "EAGLE3": {"method": "eagle3", "k": 8, "tree": (10, 60)},
    "Medusa": {"method": "medusa", "k": 4, "tree": (10, 64)},
    "PLD": {"method": "ngram", "k": 10},
}
GRID = {
    "eager_kernel_s": (30e-6, 44e-6, 52e-6, 60e-6, 70e-6, 80e-6, 100e-6),
    "tree_pass_s": (0.5e-3, 1e-3, 1.5e-3, 2e-3, 3e-3),
    "spec_step_s": (0.0, 2e-3, 3e-3, 4e-3, 6e-3),
}


@dataclass(frozen=True)
class Case:
    """A row: GPU and model, the system that runs it at its load, its speedup as measured."""

    group: str
    system: System
    workload: Workload
    measured: float

    def error(self, point: Sequence[float]) -> float:
        """ln of predicted over measured."""
        engine = self.system.engine
        over = replace(engine.overheads, **dict(zip(GRID, point, strict=True)))
        system = replace(self.system, engine=replace(engine, overheads=over))
        return log(compared(system, self.workload).speedup / self.measured)


def cases() -> Iterator[Case]:
    for row in read_csv(PUBLISHED):
        if row["set_id"] == "SPECBENCH" and row["method"] in METHODS:
            gpu, model = GPUS[row["gpu"]], row["target_model"]
            options = {
                "gpu": gpu, "model": model, "engine": "transformers", "input_len": 400,
                "output_len": 400, "acceptance_length": float(row["mean_accepted_length"]),
                **METHODS[row["method"]],
            }
            request = build_request(DeploymentOptions.of_values(options))
            yield Case(
                f"{gpu} {model}", request.system, request.workload, float(row["speedup"])
            )


def main() -> None:
    found = list(cases())
    points = list(product(*GRID.values()))
    errors = {p: [case.error(p) for case in found] for p in points}
    groups = defaultdict(list)
    for place, case in enumerate(found):
        groups[case.group].append(place)

    def best(left_out: str = "") -> tuple[float, ...]:
        used = [i for name, places in groups.items() if name != left_out for i in places]
        return min(points, key=lambda p: mean(abs(errors[p][i]) for i in used))

    chosen = best()
    middle = median(map(abs, errors[chosen]))
    print(dict(zip(GRID, chosen, strict=True)), f"median |ln| {middle:.3f}")
    for name, places in groups.items():
        other = best(name)
        inside, outside = (mean(abs(errors[p][i]) for i in places) for p in (chosen, other))
        print(f"{name}: mean |ln| {inside:.3f}; left out {outside:.3f} with {other}")


if __name__ == "__main__":
    main()
