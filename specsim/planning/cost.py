"""What tokens cost: money from a price per GPU hour, energy from the watts of the load.

    cost per million output tokens = price per GPU hour x GPUs / (output tokens per hour) x 1e6
    joules per output token       <= board power limit x GPUs / output tokens per second

The load's own joules per token come from the power model (`analytic.energy`, or a simulated run);
the limit bounds what the boards add to them from above.
"""

from dataclasses import dataclass
from typing import ClassVar

from specsim.hardware.profile import HardwareProfile
from specsim.jsonable import Jsonable

HOUR_S = 3600.0
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Cost(Jsonable):
    """Of output tokens at a rate. None where no price was given, or no power is known."""

    renamed: ClassVar = {
        "per_million_tokens": "per_million_output_tokens",
        "joules_per_token": "joules_per_output_token",
        "joules_per_token_at_most": "joules_per_output_token_at_most",
        "power_w": "power_limit_w_per_gpu",
    }

    output_tok_s: float
    gpus: int
    price_per_gpu_hour: float | None
    per_million_tokens: float | None
    joules_per_token: float | None
    joules_per_token_at_most: float | None
    power_w: float | None
    power_source: str


def cost_of(
    output_tok_s: float, gpus: int, profile: HardwareProfile, price: float | None = None,
    joules_per_token: float | None = None,
) -> Cost:
    """Cost of serving `output_tok_s` on `gpus` devices of this profile. joules_per_token: of the
    load, by `energy_of` or a simulated run."""
    serves = output_tok_s > 0
    money = price * gpus / (output_tok_s * HOUR_S) * MILLION if price and serves else None
    power = profile.power_w
    source = profile.sources.get("power_w", "") if power is not None else ""
    energy = power * gpus / output_tok_s if power is not None and serves else None
    return Cost(output_tok_s, gpus, price, money, joules_per_token, energy, power, source)
