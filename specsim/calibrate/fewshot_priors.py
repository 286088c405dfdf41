"""Where servers lie around their engine's profile: the priors and the scatter of few-shot fits.

`catalog/fewshot_priors.json` is written by `python validation/scripts/fewshot.py --priors` from all
public measurements, its `settings` by `plan_runs.py --fit`. A width is the standard deviation of
the logarithm of a parameter around the profile's value; that of 'acceptance' is of the logit of
accepted / drafted tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specsim.data import data_table

# On one machine the memory rate already ranged by a factor of 1.6, ln 1.6 = 0.47
# (hw_profiles/cpu-generic.toml); no public measurement of a CPU server tells it better.
CPU_KERNEL_WIDTH = 0.5
GENERIC_CPU = "cpu-generic"
TIMES = {"tpot_s": 1, "output_tok_s": -1}  # metrics that tell a step's time, and which way


@dataclass(frozen=True)
class Priors:
    """widths: by parameter. noise: by metric of a point, scatter of one value against a right
    model. shared, reach: scatter that times share whose loads are alike, and the difference of
    ln(concurrency) over which that falls by a factor of e. host_s: step_s is moved by
    host_s * sinh(x) seconds, where it is not known to a factor: by seconds near the profile, by
    factors far from it. settings: scatter between settings of one server at one load: "own" of a
    setting alone, "length" shared by draft lengths alike, "drafter" by all of a drafter."""

    widths: Mapping[str, float]
    noise: Mapping[str, float]
    shared: float = 0.0
    reach: float = 1.0
    host_s: float = 0.0
    settings: Mapping[str, float] = field(default_factory=dict)

    def on_cpu(self, step_s: float, profile: str) -> "Priors":
        """For a CPU. The host's work runs on the same cores as the kernels, and engine profiles of
        GPU servers do not know it: it may be as large as a step of `step_s`. Of the profile that
        stands for CPUs not measured, kernels are less certain too."""
        own = profile != GENERIC_CPU
        width = self.widths["kernel_scale"] if own else CPU_KERNEL_WIDTH
        return replace(
            self, widths={**self.widths, "kernel_scale": width}, host_s=CPU_KERNEL_WIDTH * step_s,
        )

    def width(self, name: str) -> float:
        """Of a parameter; 'acceptance:GROUP' of a group of points has that of 'acceptance'."""
        return self.widths[name.split(":", 1)[0]]

    def scatter(self, measured: Sequence[tuple[str, float]]) -> list[list[float]]:
        """Covariance of the logarithms of values, given as (metric, ln concurrency)."""
        return [
            [
                (self.noise[one] ** 2 if i == j else 0.0)
                + TIMES.get(one, 0) * TIMES.get(other, 0)
                * self.shared**2 * math.exp(-abs(at - there) / self.reach)
                for j, (other, there) in enumerate(measured)
            ]
            for i, (one, at) in enumerate(measured)
        ]


def shipped() -> Priors:
    """The priors of the catalogue."""
    raw = data_table("catalog", "fewshot_priors.json")
    return Priors(raw["widths"], raw["noise"], raw["shared"], raw["reach"],
                  settings=raw["settings"])


PRIORS = shipped()
