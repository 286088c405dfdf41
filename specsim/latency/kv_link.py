"""The link over which prefill replicas send the caches of prompts to decode replicas.

A request's cache is what its prompt holds on one GPU: every GPU of a prefill replica sends its own
share to its counterpart, over a card or link of its own. The drafter's layers and a recurrent state
travel with it; of layers with a window, the window. vLLM 0.25 (NixlConnector) and SGLang 0.5
(disaggregation/) send so, whole once the prompt is complete or chunk by chunk while it is computed.
"""

from dataclasses import dataclass

from specsim.errors import UsageError
from specsim.hardware.link import PCIE
from specsim.hardware.profile import HardwareProfile
from specsim.latency.memory import MemoryPlan
from specsim.options.values import shown
from specsim.roofline import params
from specsim.units import GB

# Bytes per second of one port or GPU in one direction, as standards and datasheets give them.
LINKS = {
    "eth-25": 25e9 / 8,
    "eth-100": 100e9 / 8,
    "ib-200": 200e9 / 8,  # HDR
    "ib-400": 400e9 / 8,  # NDR; the same rate as RoCE at 400 Gbit/s
    "ib-800": 800e9 / 8,  # XDR
    **{name: PCIE[name] for name in ("pcie4-x16", "pcie5-x16")},
}
# Of an NDR port's 50 GB/s, what one GPU moves between nodes (`roofline.defaults`: 40 GB/s).
NAMED_SHARE = 0.8
CHUNKS, WHOLE = "chunks", "whole"
TRANSFERS = (WHOLE, CHUNKS)


@dataclass(frozen=True, slots=True)
class KVLink:
    """Seconds that a GPU's link is busy with one request's cache.

    token_s: per prompt token. windows: (tokens, seconds per token) of layers with a window.
    state_s: of the recurrent state. latency_s: from the last byte sent until a decode replica has
    it. by_chunk: each prompt chunk is sent when it is computed, else all when the last one is.
    lanes: links side by side, one per attention group; a request has one of them."""

    token_s: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()
    state_s: float = 0.0
    latency_s: float = 0.0
    by_chunk: bool = False
    lanes: int = 1

    def rest_s(self, prompt_tokens: int) -> float:
        """Of a prompt, what does not grow with every token: sent last."""
        kept = sum(min(prompt_tokens, window) * each_s for window, each_s in self.windows)
        return kept + self.state_s

    def whole_s(self, prompt_tokens: int) -> float:
        """The link's time for a whole prompt."""
        return prompt_tokens * self.token_s + self.rest_s(prompt_tokens)


def link_rate(text: str | None, profile: HardwareProfile) -> tuple[float, float]:
    """(bytes per second, latency in seconds) of a link by name or in GB/s; None: the network
    between nodes, as collectives are priced over it. UsageError."""
    network = params(profile, "network")
    latency_s = network["floor_s"]
    if text is None:
        return network["bytes_per_s"], latency_s
    name = text.strip().lower()
    if name == "inf":
        return float("inf"), 0.0
    if name == "nvlink":
        profile.require_link(2)
        return profile.link_bytes_per_s * NAMED_SHARE, latency_s
    if name in LINKS:
        return LINKS[name] * NAMED_SHARE, latency_s
    try:
        rate = float(name) * GB
    except ValueError:
        rate = -1.0
    if not 0 < rate < float("inf"):
        raise UsageError(
            f"--kv-link is {shown(text)}; write GB/s of one GPU, such as 40, inf, nvlink, or one "
            f"of {', '.join(LINKS)}"
        )
    return rate, latency_s


def kv_link(
    plan: MemoryPlan, rate: tuple[float, float], *, by_chunk: bool, lanes: int, states: int
) -> KVLink:
    """The link of a deployment's prefill replicas. plan: their memory; its bytes are an attention
    group's share of a request, of which there are `lanes`. states: copies of the recurrent state
    that the plan holds of a request; one travels."""
    bytes_per_s, latency_s = rate
    each = lanes / bytes_per_s
    return KVLink(
        plan.kv_bytes_per_token * each,
        tuple((window, size * each) for window, size in plan.windows),
        plan.state_bytes_per_seq / states * each,
        latency_s, by_chunk, lanes,
    )
