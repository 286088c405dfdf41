"""Finding profiles: names as people type them, folders, files, and near matches."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specsim.data import data_root, data_table
from specsim.errors import FormatError, ProfileError, SpecSimError
from specsim.hardware.store import find_profile, list_profiles, load_profile, normalise

MINIMAL = Path(__file__).with_name("minimal.toml").read_text()


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("H200", "h200-sxm"),
        ("h200 sxm", "h200-sxm"),
        ("NVIDIA H200", "h200-sxm"),
        ("h100", "h100-sxm"),
        ("H100 80GB", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("a100", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("2080 Ti", "rtx-2080-ti"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("GB200", "gb200"),
        ("MI300X", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("DGX Spark", "gb10"),
        ("Strix Halo", "strix-halo"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "b60"),
        ("cpu", "cpu-generic"),
        ("RTX PRO 6000 Blackwell SE 96GB (PCIe)", "rtx-pro-6000"),
        ("H100 NVL", "h100-nvl"),
        ("H100 SXM5 80 GB HBM3 (NVLink)", "h100-sxm"),
        ("A100 80 GB (PCIe 4.0)", "a100-pcie-80gb"),
        ("a6000", "rtx-a6000"),
        ("NVIDIA RTX A6000 48 GiB", "rtx-a6000"),
        ("MI355X OAM", "mi355x"),
        ("AMD Instinct MI300X OAM 192 GB", "mi300x"),
        ("GeForce RTX 5090 32GB Blackwell PCIe", "rtx-5090"),
        ("L40S 48 GB Ada PCIe", "l40s"),
        ("H100 Hopper", "h100-sxm"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-ws"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
        ("Intel Gaudi2", "gaudi2"),
        ("RTX 6000", "rtx-6000-ada"),
    ],
)
def test_names_as_people_type_them(typed: str, name: str) -> None:
    assert load_profile(typed).name == name


@pytest.mark.parametrize(
    ("typed", "near"),
    [("h2000", "h200-sxm"), ("rtx 4091", "rtx-4090"), ("mi300", "mi300x"), ("A1000", "a100-80gb")],
)
def test_unknown_names_get_near_matches(typed: str, near: str) -> None:
    with pytest.raises(ProfileError, match=f"unknown GPU '{typed}'; near matches: .*{near}"):
        load_profile(typed)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("Apple M3 Ultra", "MLX"), ("m4-max", "MLX"), ("TPU v5e", "tpu-inference"),
        ("v6e-8", "TPU"), ("Trillium", "TPU"), ("trn2", "Trainium"), ("Inferentia2", "NxD"),
        ("Ascend 910B", "Ascend"), ("Groq LPU", "its maker"), ("Tesla P40", "Volta"),
        ("GTX 1080 Ti", "Volta"), ("Arc A770", "Xe HPG"), ("Intel Arc A770 16GB", "Xe HPG"),
        ("AMD Instinct MI308X", "no datasheet"),
    ],
)
def test_accelerators_of_other_engines_are_refused_with_the_reason(typed: str, why: str) -> None:
    with pytest.raises(ProfileError, match=f"GPU '{typed}' is not modelled: .*{why}"):
        load_profile(typed)


def test_no_profile_is_called_unmodelled() -> None:
    for entry in list_profiles():
        for name in (entry.name, entry.title, *entry.aliases):
            assert load_profile(name).name
            for kind in data_table("catalog", "unmodelled_devices.toml").values():
                assert not any(re.fullmatch(p, normalise(name)) for p in kind["names"]), name


@pytest.mark.parametrize("typed", ["V100 PCIe", "RTX 4090 48GB", "L40S SXM", "MI300X PCIe"])
def test_what_is_not_true_of_a_card_finds_none(typed: str) -> None:
    with pytest.raises(ProfileError, match="unknown GPU"):
        load_profile(typed)


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("8xH200", "--gpu h200-sxm --tp 8"),
        ("2 x RTX 3090", "--gpu rtx-3090 --tp 2"),
        ("4x NVIDIA L40S 48 GB", "--gpu l40s --tp 4"),
    ],
)
def test_a_number_of_cards_is_an_option_of_its_own(typed: str, right: str) -> None:
    with pytest.raises(ProfileError, match=right):
        load_profile(typed)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("h200-sxm", "measured"), ("l40s", "partly measured"), ("b200", "partly measured"),
        ("rtx-pro-6000", "partly measured"), ("rtx-3090", "assumed"),
    ],
)
def test_one_word_for_how_kernels_are_known(name: str, known: str) -> None:
    assert load_profile(name).kernels_known == known


@pytest.mark.parametrize(
    "typed", ["", " ", "nvidia", "zzz", "../h200-sxm", "a/b", "x" * 5_000, "\0.toml", "."]
)
def test_odd_names_are_refused_with_one_line(typed: str) -> None:
    with pytest.raises(SpecSimError) as caught:
        load_profile(typed)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 6_000


def test_no_alias_belongs_to_two_shipped_profiles() -> None:
    owner: dict[str, str] = {}
    for entry in list_profiles():
        for alias in (entry.name, entry.title, *entry.aliases):
            assert owner.setdefault(normalise(alias), entry.name) == entry.name, alias


def test_the_list_agrees_with_the_files() -> None:
    entries = list_profiles()
    files = data_root("hw_profiles").glob("*.toml")
    assert [e.name for e in entries] == sorted(path.stem for path in files)
    for entry in entries:  # the list reads heads only, loading reads everything
        profile = load_profile(entry.name)
        assert (entry.title, entry.aliases) == (profile.title, profile.aliases)


def test_a_users_folder_wins_over_the_shipped_profiles(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "h200-sxm.toml").write_text(MINIMAL.replace("132", "99"))
    (tmp_path / "mine.toml").write_text(MINIMAL.replace("sms", 'aliases = ["My Card"]\nsms'))
    assert load_profile("h200-sxm", folder=tmp_path).sms == 99
    assert load_profile("MY-CARD", folder=tmp_path).name == "mine"
    assert load_profile("h100", folder=tmp_path).name == "h100-sxm"
    assert load_profile("h200-sxm").sms == 132
    monkeypatch.setenv("SPECSIM_PROFILES", str(tmp_path))
    assert load_profile("h200-sxm").sms == 99
    assert sum(entry.name == "h200-sxm" for entry in list_profiles()) == 1
    assert any(entry.name == "mine" for entry in list_profiles())


def test_an_edited_file_is_read_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    assert load_profile(str(path)).sms == 132
    path.write_text(MINIMAL.replace("sms = 132", "sms = 7"))
    os.utime(path, ns=(1, 1))
    assert load_profile(str(path)).sms == 7


def test_a_path_to_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL + '[kernels]\ninherit = "sibling"\n')
    (tmp_path / "sibling.toml").write_text(MINIMAL + '[kernels."a"]\nx = 1\nsource = "s"\n')
    assert load_profile(str(path)).kernel("a").inherited_from == "sibling"
    assert find_profile(str(path)) == path


def test_files_that_are_no_profiles(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FormatError, match="cannot be read"):
        load_profile(str(tmp_path / "absent.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(FormatError, match="not a file"):
        load_profile(str(tmp_path / "folder.toml"))
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * 1_000_001)
    with pytest.raises(FormatError, match="larger than 1000000 bytes"):
        load_profile(str(big))
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[device]\ntitle = \"caf\xe9\"\n")
    with pytest.raises(FormatError, match="line 2 is not UTF-8"):
        load_profile(str(latin))
    with pytest.raises(ProfileError, match=r"must end in \.toml"):
        load_profile(str(tmp_path / "mine.json"))
    with pytest.raises(ProfileError, match="is not a folder"):
        load_profile("h200", folder=tmp_path / "absent")


def test_a_broken_neighbour_does_not_stop_the_search(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "broken.toml").write_text("= = =")
    (tmp_path / "odd.toml").write_text('device = 3\naliases = "x"')
    (tmp_path / "late.toml").write_text("[peak]\n" + MINIMAL.replace("[peak]\n", "").replace(
        "[peak.flops]", "").replace("bf16 = 989e12", "") + 'aliases = ["Last Card"]')
    names = {entry.name for entry in list_profiles(tmp_path)}
    assert {"broken", "odd", "late", "h200-sxm"} <= names
    assert load_profile("h100", folder=tmp_path).name == "h100-sxm"
    with pytest.raises(FormatError, match="not valid TOML"):
        load_profile("broken", folder=tmp_path)


def test_loading_stays_light() -> None:
    """`specsim predict` must start fast: no numpy, scipy or pydantic on the way to a profile."""
    code = (
        "import sys; from specsim.hardware.store import load_profile; load_profile('NVIDIA H200'); "
        "heavy = {'numpy', 'scipy', 'pydantic', 'torch', 'simpy', 'typer'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
