"""--link: how the GPUs of a machine are joined, and what cannot be asked for."""

import pytest

from specsim.errors import UsageError
from specsim.hardware.link import with_link
from specsim.hardware.store import load_profile
from specsim.latency.collectives import Collectives
from specsim.latency.engine import find_engine
from specsim.latency.kv_link import LINKS
from specsim.model.catalogue import find_model
from specsim.ops.shapes import AllReduce
from specsim.roofline.comm import all_reduce
from specsim.roofline.device import params

LLAMA = find_model("llama-3.1-8b")
MIB = 2**20


@pytest.mark.parametrize(("name", "kind", "gb_s"), [
    ("pcie4-x16", "PCIe 4.0 x16", 31.5), ("PCIE4-X8", "PCIe 4.0 x8", 15.75),
    ("pcie3-x4", "PCIe 3.0 x4", 3.9375), ("pcie5-x16", "PCIe 5.0 x16", 64),  # its own: as it says
    ("pcie5-x16-no-p2p", "PCIe 5.0 x16 no-P2P", 64),
    ("pcie4-x16-no-p2p", "PCIe 4.0 x16 no-P2P", 31.5),
])
def test_a_slot(name: str, kind: str, gb_s: float) -> None:
    found = with_link(load_profile("rtx-pro-6000"), name)
    assert found.link_kind == kind
    assert found.link_bytes_per_s == pytest.approx(gb_s * 1e9)


def test_half_the_link_takes_twice_the_time_for_what_it_moves() -> None:
    wide = load_profile("rtx-pro-6000")
    for path in ("custom", "nccl"):
        shape = AllReduce(64 * MIB, 2, path)
        fast, slow = (
            all_reduce(with_link(wide, name), shape).mem_s for name in (None, "pcie4-x16")
        )
        assert slow / fast == pytest.approx(64 / 31.5)


@pytest.mark.parametrize("engine", ["vllm", "vllm==0.10.1", "sglang==0.5"])
@pytest.mark.parametrize(("gpu", "link", "path"), [
    ("a100-pcie-80gb", None, "custom"), ("a100-pcie-80gb", "pcie4-x16-no-p2p", "nccl"),
    ("rtx-3090", None, "nccl"), ("rtx-3090", "pcie4-x16", "custom"),
    ("rtx-3090", "nvlink", "custom"), ("rtx-4090", None, "nccl"),
])
def test_who_sums_over_two_cards(engine: str, gpu: str, link: str | None, path: str) -> None:
    """Engines use their own kernel only where a card can read its peer's memory."""
    profile = with_link(load_profile(gpu), link)
    rules = Collectives.of(find_engine(engine).all_reduce, profile, LLAMA)
    assert rules.path(MIB, 2) == path
    assert Collectives.of(find_engine(engine).all_reduce, load_profile(gpu), LLAMA).path(
        MIB, 4
    ) == "nccl"


@pytest.mark.parametrize("gpu", [
    "a100-pcie-80gb", "a30", "h100-pcie", "rtx-a6000", "rtx-3090", "rtx-2080-ti",
])
def test_a_bridge_is_faster_than_the_slots_and_joins_two(gpu: str) -> None:
    card = load_profile(gpu)
    pair = with_link(card, "nvlink", 2)
    assert pair.link_bytes_per_s == card.bridge_bytes_per_s
    assert pair.link_bytes_per_s > card.link_bytes_per_s
    assert pair.gpus_per_node == 2
    for size in (16e3, 1e6, 16e6):
        over, by_slot = (all_reduce(one, AllReduce(size, 2)).seconds for one in (pair, card))
        assert over < by_slot
    assert params(pair, "all_reduce") != params(card, "all_reduce")
    with pytest.raises(UsageError, match="joins 2 cards, not 4"):
        with_link(card, "nvlink", 4)


@pytest.mark.parametrize(("gpu", "name", "said"), [
    ("rtx-pro-6000", "pcie9", "use one of nvlink, pcie3-x16"),
    ("rtx-pro-6000", "nvlink", "states no bridge"),
    ("rtx-pro-6000", "nvlink-no-p2p", "may follow a PCIe name"),
    ("h200-sxm", "pcie5-x16", "joined by NVLink 4; leave it out"),
    ("h200-sxm", "nvlink", "joined by NVLink 4; leave it out"),
])
def test_what_cannot_be_is_refused(gpu: str, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        with_link(load_profile(gpu), name)


def test_caches_travel_over_the_same_slots() -> None:
    assert (LINKS["pcie4-x16"], LINKS["pcie5-x16"]) == (31.5e9, 63e9)
