"""The link that joins the GPUs of a machine, where it is not the one that the profile states.

A card's slot may be of an older generation than the card, a pair of cards may have a bridge, and a
board, driver or virtual machine may allow no transfers between cards: buffers then go through host
memory, which engines leave to the library (`engines/SCHEMA.md`, all_reduce).
"""

import re
from dataclasses import replace

from specsim.errors import UsageError, closest, shown
from specsim.hardware.profile import HardwareProfile

# Bytes per second of 16 lanes in one direction: 16 lanes x 8, 16, 32 GT/s x 128/130 (PCI-SIG).
PCIE_X16 = {"3": 15.75e9, "4": 31.5e9, "5": 63.0e9}
PCIE = {
    f"pcie{generation}-x{lanes}": rate * lanes / 16
    for generation, rate in PCIE_X16.items()
    for lanes in (16, 8, 4)
}
BRIDGE = "nvlink"
NO_PEERS = "no-P2P"  # the word of a link's kind that the engines' rules ask for


def with_link(profile: HardwareProfile, name: str | None, gpus: int = 1) -> HardwareProfile:
    """`profile` with the `gpus` of a replica joined as `name` says: 'nvlink' by the bridge of a
    pair, or 'pcie4-x16' and the like, '-no-p2p' after it where cards reach each other through host
    memory only. None: as the profile states. UsageError."""
    if name is None:
        return profile
    asked = name.strip().lower()
    ending = f"-{NO_PEERS}".lower()
    slot = asked.removesuffix(ending)
    if slot not in PCIE and asked != BRIDGE:
        raise UsageError(
            f"--link is {shown(name)}; {closest(asked, [BRIDGE, *PCIE], 2)}use one of {BRIDGE}, "
            f"{', '.join(PCIE)}; {ending} may follow a PCIe name"
        )
    if not profile.link_kind.startswith("PCIe"):
        raise UsageError(
            f"--link is {shown(name)}, but {profile.name} is joined by {profile.link_kind}; leave "
            "it out (it is for cards in slots, such as h100-pcie)"
        )
    if asked == BRIDGE:
        return _bridged(profile, gpus)
    generation, lanes = re.findall(r"\d+", slot)
    kind = f"PCIe {generation}.0 x{lanes}"
    # The slot that the profile states keeps the rate it states.
    own = profile.link_kind.removesuffix(f" {NO_PEERS}") == kind
    rate = profile.link_bytes_per_s if own else PCIE[slot]
    return replace(
        profile, link_kind=kind + f" {NO_PEERS}" * (asked != slot), link_bytes_per_s=rate
    )


def _bridged(profile: HardwareProfile, gpus: int) -> HardwareProfile:
    """A pair of cards on their bridge, whose sums are assumed as over NVLink in general."""
    if profile.bridge_bytes_per_s is None:
        raise UsageError(
            f"--link is '{BRIDGE}', but the profile of {profile.name} states no bridge; leave it "
            "out, or give [link] bridge_bytes_per_s in a profile of your own"
        )
    if gpus > 2:
        raise UsageError(
            f"--link is '{BRIDGE}', but a bridge joins 2 cards, not {gpus}: sums of {gpus} go over "
            "the slots; leave it out"
        )
    kernels = {n: t for n, t in profile.kernels.items() if not n.startswith("all_reduce")}
    return replace(
        profile, link_kind="NVLink bridge", link_bytes_per_s=profile.bridge_bytes_per_s,
        gpus_per_node=2, kernels=kernels,
    )
