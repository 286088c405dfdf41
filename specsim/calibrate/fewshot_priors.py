"""Where servers lie around their engine's profile: centres and widths of the few-shot priors.

`catalog/fewshot_priors.json` is written by `python validation/scripts/fewshot.py --priors` from all
public measurements: the centres and widths under which the residuals of those measurements are most
likely, one server (set, model, GPU, method) against another (fewshot_priors.py beside that script
says how). A centre is the factor on the profile's value that servers have in the median; a width
the standard deviation of the logarithm around it; that of 'acceptance' is of the logit of accepted
/ drafted tokens around the catalogue's value. noise: scatter of one measured value against a right
model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specsim.data import data_root

# On one machine the memory rate already ranged by a factor of 1.6, ln 1.6 = 0.47
# (hw_profiles/cpu-generic.toml); no public measurement of a CPU server tells it better.
CPU_KERNEL_WIDTH = 0.5


@dataclass(frozen=True)
class Priors:
    """widths, centres: by parameter (no centre: 1). noise: by metric of a point."""

    widths: Mapping[str, float]
    noise: Mapping[str, float]
    centres: Mapping[str, float] = field(default_factory=dict)

    def on_cpu(self) -> "Priors":
        """For a CPU, whose profile is seldom of the same machine: kernels are less certain."""
        return replace(self, widths={**self.widths, "kernel_scale": CPU_KERNEL_WIDTH})

    def width(self, name: str) -> float:
        """Of a parameter; 'acceptance:GROUP' of a group of points has that of 'acceptance'."""
        return self.widths[name.split(":", 1)[0]]


def shipped() -> Priors:
    """The priors of the catalogue."""
    path = data_root("catalog") / "fewshot_priors.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Priors(raw["widths"], raw["noise"], raw["centres"])


PRIORS = shipped()
