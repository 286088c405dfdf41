"""Where servers lie around their engine's profile: centres and widths of the few-shot priors.

Written by `python validation/scripts/fewshot.py --priors` from all public measurements: the centres
and widths under which the residuals of those measurements are most likely, one server (set, model,
GPU, method) against another (fewshot_priors.py beside that script says how). A centre is the factor
on the profile's value that servers have in the median; a width the standard deviation of the
logarithm around it; that of 'acceptance' is of the logit of accepted / drafted tokens around the
catalogue's value. noise: scatter of one measured value against a right model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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


WIDTHS: dict[str, float] = {
    "kernel_scale": 0.119,
    "drafter_scale": 0.873,
    "expert_scale": 0.541,
    "step_s": 1.000,
    "seq_s": 1.000,
    "layer_s": 1.000,
    "sync_s": 0.484,
    "spec_step_s": 0.958,
    "spec_seq_s": 0.508,
    "draft_pass_s": 0.442,
    "tree_pass_s": 1.000,
    "mixed_step_s": 0.525,
    "request_s": 0.436,
    "ngram_seq_s": 0.500,
    "acceptance": 0.753,
}
NOISE: dict[str, float] = {
    "tpot_s": 0.064,
    "output_tok_s": 0.064,
    "speedup": 0.058,
    "ttft_s": 0.410,
}
CENTRES: dict[str, float] = {
    "kernel_scale": 1.066,
    "drafter_scale": 1.085,
    "expert_scale": 1.528,
    "step_s": 0.486,
    "seq_s": 2.602,
    "layer_s": 0.611,
    "sync_s": 0.548,
    "spec_step_s": 1.072,
    "spec_seq_s": 1.180,
    "draft_pass_s": 1.190,
    "tree_pass_s": 0.813,
    "mixed_step_s": 1.408,
    "request_s": 2.025,
    "ngram_seq_s": 1.000,
}
PRIORS = Priors(WIDTHS, NOISE, CENTRES)
