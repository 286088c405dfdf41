"""Engine profiles: the shipped ones, versions and names, and what a file may not say."""

import math
import re
import shutil
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

import specsim
from specsim.data import data_root
from specsim.errors import FormatError, ProfileError, SpecSimError
from specsim.hardware.store import load_profile
from specsim.latency import engine
from specsim.latency.engine import engine_from_dict, engine_of_year, find_engine, list_engines
from specsim.latency.engine_profile import EngineProfile, Scheduler, Server
from specsim.latency.graphs import padded_tokens
from specsim.latency.overheads import Overheads
from specsim.methods.base import METHODS
from specsim.model.catalogue import find_model, variant

GOOD = {"engine": {"name": "mine", "version": "1.0"}}


def test_shipped_profiles_are_complete() -> None:
    names = {engine.name for engine in list_engines()}
    assert names >= {"vllm", "sglang", "trtllm"}
    for found in list_engines():
        assert found.methods and set(found.methods) <= set(METHODS)
        assert found.sources, f"{found.name} {found.version} names no source"
        assert found.title


@pytest.mark.parametrize(
    ("name", "version"),
    [("vllm", "0.25.1"), ("vLLM", "0.25.1"), ("vllm==0.25.1", "0.25.1"), ("vllm 0.11", "0.13"),
     ("vllm@v0.10.1", "0.10.1"), ("vllm==0.10.0", "0.9"), ("vllm==0.2", "0.9"),
     ("vllm==99", "0.25.1"), ("vllm==0.25.0rc1", "0.25.1"), ("vllm==0.14", "0.24"),
     ("vllm==0.13.9", "0.13"), ("SGLang", "0.5.23"), ("sglang 0.5.9", "0.5"),
     ("sglang==0.5.12", "0.5.23"), ("tensorrt-llm", "1.0")],
)
def test_engines_are_found_as_people_type_them(name: str, version: str) -> None:
    assert find_engine(name).version == version


@pytest.mark.parametrize(
    ("name", "message"),
    [("vlm", "did you mean 'vllm'"), ("", "known engines"), ("vllm==abc", "not a version"),
     ("vllm==", "not a version"), ("vllm==1..2", "not a version"), ("nope.toml", "not a file")],
)
def test_unknown_engines_are_refused(name: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        find_engine(name)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[engine]\nname = "mine"\nversion = "2"\nmethods = ["mtp"]\ngraph_max = 64\n'
        "[overheads]\nstep_s = 1e-3\n[sources]\nrules = \"a guess\"\n"
    )
    engine = find_engine(str(path))
    assert (engine.name, engine.graph_max, engine.overheads.step_s) == ("mine", 64, 1e-3)
    assert engine.methods == ("mtp",)


@pytest.mark.parametrize("text", ["[engine", "\x00", "[engine]\nname = 'a'\nname = 'b'"])
def test_broken_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(FormatError, match="not valid TOML"):
        find_engine(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError):
        find_engine(str(path))
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(FormatError, match="1 MB"):
        find_engine(str(path))


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        ("overheads", "step_s", 5, "seconds"),
        ("overheads", "step_s", -1e-3, "seconds"),
        ("overheads", "step_s", math.nan, "seconds"),
        ("overheads", "step_s", math.inf, "seconds"),
        ("overheads", "step_s", "1ms", "seconds"),
        ("overheads", "stepp_s", 1e-3, "did you mean 'step_s'"),
        ("engine", "max_num_seq", 4, "did you mean 'max_num_seqs'"),
        ("engine", "max_num_seqs", 0, "from 1"),
        ("engine", "max_num_seqs", 2.5, "whole number"),
        ("engine", "max_num_seqs", True, "whole number"),
        ("engine", "max_num_seqs", 10**12, "whole number"),
        ("engine", "gpu_memory_utilization", 2, "0.05 to 1"),
        ("engine", "gpu_memory_utilization", math.nan, "number"),
        ("engine", "gpu_memory_utilization", "0.9", "number"),
        ("engine", "methods", "mtp", "list of texts"),
        ("engine", "methods", [1], "list of texts"),
        ("engine", "aliases", 5, "list of texts"),
        ("engine", "graph_unit", "pages", "'tokens' or 'requests'"),
        ("engine", "graph_max_by_arch", {"hopper": 0}, "above 0"),
        ("engine", "graph_max_by_arch", 512, "table"),
        ("engine", "mixed_steps", "yes", "true or false"),
        ("engine", "state_copies", -1, "number from 0"),
        ("engine", "name", 5, "text"),
        ("engine", "name", "x|y", "small letters"),
        ("engine", "methods", ["mpt"], "did you mean 'mtp'"),
        ("engine", "eager_drafters", ["foo"], "eager_drafters has 'foo', which is not known"),
        ("engine", "version", "", "as text"),
        ("engine", "overheads", {}, "unknown key"),
        ("sources", "rules", 5, None),
    ],
)
def test_wrong_values_are_refused_by_name(
    table: str, key: str, value: object, message: str | None
) -> None:
    raw = {name: dict(body) for name, body in GOOD.items()}
    raw.setdefault(table, {})[key] = value
    if message is None:
        assert engine_from_dict(raw, "x.toml").name == "mine"
        return
    with pytest.raises(ProfileError, match=message) as caught:
        engine_from_dict(raw, "x.toml")
    assert str(caught.value).startswith("x.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [{}, {"engine": {}}, {"engine": 5}, {"engines": {}}])
def test_incomplete_documents_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(SpecSimError):
        engine_from_dict(raw, "x.toml")


# vLLM 0.25.1: 1, 2, 4, then steps of 8 to 256 and of 16 to 512; verify batches in multiples of q
@pytest.mark.parametrize(
    ("tokens", "q_len", "rows"),
    [(1, 1, 1), (2, 1, 2), (3, 1, 4), (4, 1, 4), (5, 1, 8), (8, 1, 8), (9, 1, 16), (250, 1, 256),
     (257, 1, 272), (512, 1, 512), (513, 1, 513), (4, 4, 4), (12, 4, 16), (3, 3, 3), (9, 3, 9),
     (9, 9, 9), (10, 5, 10), (20, 5, 20), (33, 16, 48), (600, 3, 600)],
)
def test_graph_sizes(tokens: int, q_len: int, rows: int) -> None:
    assert padded_tokens(tokens, q_len, 512) == rows


def test_verify_batches_take_the_smallest_captured_multiple() -> None:
    grid = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]
    for q_len in (2, 3, 4, 5, 6, 8, 9, 17):
        sizes = sorted({-(-size // q_len) * q_len for size in grid})
        for tokens in range(1, 497):
            expected = next(size for size in sizes if size >= tokens)
            assert padded_tokens(tokens, q_len, 512) == expected


def test_padding_never_loses_rows() -> None:
    for tokens in range(1, 700):
        for q_len in (1, 2, 3, 4, 6, 8):
            rows = padded_tokens(tokens, q_len, 512)
            assert rows >= tokens
            assert rows - tokens < 16 + q_len


@pytest.mark.parametrize("path", sorted(data_root("engines").glob("*.toml")), ids=lambda p: p.stem)
def test_packaged_files_have_the_declared_shape(path: Path) -> None:
    """They are read without the check; here it is made, and gives the same profile."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    assert engine_from_dict(raw, path.name) in list_engines()


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        ("scheduler", "victim", "first", "'last' or 'fewest_tokens'"),
        ("scheduler", "sync_methods", ["ngrm"], "did you mean 'ngram'"),
        ("scheduler", "adaptive_tiers", [[0, [1]]], "from 1"),
        ("scheduler", "asynch", True, r"unknown key 'asynch' in \[scheduler\]"),
        ("scheduler", "output_reserve", 1.5, "from 0 to 1"),
        ("server", "dialect", "triton", "'vllm', 'sglang' or 'trtllm'"),
        ("server", "lost", {"medusa": "soon"}, "must be a version"),
        ("server", "gained", {"magic": "1.0"}, "neither a method nor one of"),
        ("server", "command", "vllm serve", "list of texts"),
        ("engine", "inherit", "vlm", "did you mean 'vllm'"),
        ("engine", "inherit", "x.toml", "is not known"),  # no file can ask for itself
    ],
)
def test_rules_of_scheduler_and_server_are_checked(
    table: str, key: str, value: object, message: str
) -> None:
    raw = {name: dict(body) for name, body in GOOD.items()}
    raw.setdefault(table, {})[key] = value
    with pytest.raises(ProfileError, match=message):
        engine_from_dict(raw, "x.toml")


def test_a_new_version_says_only_what_is_new() -> None:
    """One file adds a version: the rest comes from the profile it inherits."""
    old = find_engine("vllm==0.33.0")
    new = engine_from_dict(
        {"engine": {"name": "vllm", "version": "0.50", "inherit": "vllm 0.25.1", "max_k": 8},
         "overheads": {"step_s": 1e-3}}, "vllm-0.50.toml",
    )
    assert (new.version, new.max_k, new.overheads.step_s) == ("0.50", 8, 1e-3)
    assert new.overheads.spec_step_s == old.overheads.spec_step_s
    assert (new.methods, new.server) == (old.methods, old.server)
    other = engine_from_dict(
        {"engine": {"name": "fork", "version": "1", "inherit": "sglang"},
         "server": {"label": "Fork"}}, "fork.toml",
    )
    assert other.scheduler == find_engine("sglang").scheduler
    assert (other.server.label, other.server.dialect) == ("Fork", "sglang")


def test_rules_left_out_are_those_of_the_packaged_engine_of_that_name() -> None:
    mine = engine_from_dict({"engine": {"name": "sglang", "version": "0.5.9"}}, "x.toml")
    assert mine.scheduler == find_engine("sglang==0.5.9").scheduler
    assert mine.spec_max_num_seqs == 0  # a limit, not a rule: what the file leaves out is unset
    assert not engine_from_dict(
        {"engine": {"name": "vllm", "version": "0.11"}}, "x.toml"
    ).scheduler.async_scheduling


@pytest.mark.parametrize(
    ("what", "version", "there"),
    [("medusa", "0.25.1", True), ("medusa", "0.33.0", False), ("medusa", "0.33rc1", False),
     ("draft_table", "0.24.9", False), ("draft_table", "0.25", True), ("mtp", "0.40", True),
     ("reserved_draft_tokens", "0.32.1", True), ("reserved_draft_tokens", "0.33", False)],
)
def test_what_a_version_offers(what: str, version: str, there: bool) -> None:
    assert find_engine("vllm").server.offers(what, version) is there


def test_features_that_an_engine_does_not_list_are_not_there() -> None:
    assert not find_engine("sglang").server.offers("draft_table", "9.9")


def test_a_version_that_lies_in_the_folder_is_known_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding a version is one file, which says only what is new."""
    folder = tmp_path / "engines"
    shutil.copytree(data_root("engines"), folder)
    (folder / "vllm-0.40.toml").write_text(
        '[engine]\nname = "vllm"\nversion = "0.40"\ninherit = "vllm 0.25.1"\nmax_k = 8\n'
        'methods = ["none", "mtp"]\n[overheads]\nstep_s = 1e-3\n'
    )
    monkeypatch.setattr(engine, "data_root", lambda name: folder)
    engine.list_engines.cache_clear()
    try:
        new, old = find_engine("vllm"), find_engine("vllm==0.39")
        assert (new.version, new.max_k, new.methods) == ("0.40", 8, ("none", "mtp"))
        assert new.overheads == replace(old.overheads, step_s=1e-3)
        assert old.version == "0.25.1"
        assert (new.server, new.scheduler) == (old.server, old.scheduler)
    finally:
        engine.list_engines.cache_clear()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner,
                                                                max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [*(f.name for f in fields(EngineProfile)), *(f.name for f in fields(Scheduler)),
     *(f.name for f in fields(Server)), "step_s", "inherit", "x"]
)
TABLES = st.sampled_from(["engine", "overheads", "scheduler", "server", "sources", "y"])


@settings(max_examples=examples(150), deadline=None)
@given(TABLES, KEYS, VALUES)
def test_any_value_is_taken_or_refused_in_one_line(table: str, key: str, value: object) -> None:
    raw: dict[str, dict[str, object]] = {"engine": {"name": "mine", "version": "1.0"}}
    raw.setdefault(table, {})[key] = value
    try:
        assert engine_from_dict(raw, "x.toml").name
    except SpecSimError as error:
        assert "\n" not in str(error) and len(str(error)) < 600


@pytest.mark.parametrize(
    ("table", "profile"),
    [("engine", EngineProfile), ("overheads", Overheads), ("scheduler", Scheduler),
     ("server", Server)],
)
def test_the_description_of_engine_files_names_every_key(table: str, profile: type) -> None:
    text = (data_root("engines") / "SCHEMA.md").read_text(encoding="utf-8")
    section = text.split(f"\n## [{table}]\n")[1].split("\n## ")[0]
    known = {f.name for f in fields(profile)} - {"overheads", "scheduler", "server", "sources"}
    assert known <= set(re.findall(r"`(\w+)`", section))
    if table != "overheads":
        keys = {key for row in re.findall(r"^\| (`[^|]*)\|", section, re.M)
                for key in re.findall(r"`(\w+)`", row)}
        assert keys == known


@pytest.mark.parametrize(("name", "year", "version"), [
    ("vllm", "2024", "0.9"), ("vllm", "2025", "0.10.1"), ("vllm", "2026", "0.25.1"),
    ("vllm", "", "0.25.1"), ("vllm", "late", "0.25.1"), ("sglang", "2025", "0.5"),
    ("sglang", "2026", "0.5.23"),
])
def test_a_year_names_the_profile_that_was_current(name: str, year: str, version: str) -> None:
    assert engine_of_year(name, year).version == version


@pytest.mark.parametrize(("model", "gpu", "engine", "kv"), [
    ("GLM-5.2-FP8", "b300", "sglang", "fp8"), ("GLM-5.2-FP8", "h200-sxm", "sglang", "bf16"),
    ("GLM-5.2-FP8", "b300", "vllm", "bf16"), ("llama-3.1-8b", "b300", "sglang", "bf16"),
    ("DeepSeek-R1", "b300", "sglang", "bf16"),
    ("qwen3-14b/fp8", "h200-sxm", "trtllm", "fp8"),
    ("Qwen3-235B-A22B/fp8", "h200-sxm", "trtllm", "bf16"),  # its own blocks, no cache with them
    ("qwen3-14b/fp8", "h200-sxm", "vllm", "bf16"),
    ("llama-3.1-8b/nvfp4", "b200", "trtllm==0.21", "fp8"),
    ("llama-3.1-8b", "h200-sxm", "trtllm", "bf16"), ("gpt-oss-120b", "b200", "trtllm", "bf16"),
    ("DeepSeek-R1", "h200-sxm", "trtllm", "bf16"),
])
def test_caches_are_fp8_where_the_engine_or_its_checkpoints_say_so(
    model: str, gpu: str, engine: str, kv: str
) -> None:
    """Layers that choose: SGLang 0.5.23, arg_groups/overrides.py. TensorRT-LLM: its formats."""
    name, _, weights = model.partition("/")
    spec = variant(find_model(name), weights) if weights else find_model(name)
    assert find_engine(engine).kv_dtype(spec, load_profile(gpu).arch) == kv


@pytest.mark.parametrize(("engine", "gpu", "limits"), [
    ("vllm", "rtx-4090", (256, 2048)), ("vllm", "l40s", (256, 2048)),
    ("vllm", "a100-80gb", (256, 2048)), ("vllm==0.10", "a100-pcie-40gb", (256, 2048)),
    ("vllm", "h100-sxm", (1024, 8192)), ("vllm", "rtx-pro-6000", (1024, 8192)),
    ("vllm==0.13", "mi300x", (1024, 8192)), ("sglang", "rtx-4090", (4096, 4096)),
    ("sglang", "rtx-4060-ti-16gb", (4096, 2048)), ("sglang", "a100-80gb", (4096, 8192)),
])
def test_defaults_by_device(engine: str, gpu: str, limits: tuple[int, int]) -> None:
    """vllm 0.25.1, engine/arg_utils.py, get_batch_defaults: of its server, below 70 GiB or on A100
    a quarter of the slots and of the tokens of a step. sglang 0.5.23, arg_groups/memory_hook.py."""
    profile = load_profile(gpu)
    found = find_engine(engine).on(profile.name, profile.mem_bytes)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == limits
    if engine == "sglang":
        graphs = {"rtx-4090": (48, 160), "rtx-4060-ti-16gb": (8, 8)}.get(gpu, (256, 256))
        wide = find_engine(engine).on(profile.name, profile.mem_bytes, 4)
        assert (found.graph_limit(profile.arch), wide.graph_limit(profile.arch)) == graphs
    asked = specsim.predict(
        "llama-3.1-8b", gpu=gpu, engine=engine, method="none", concurrency=1, weights="fp8",
    )
    assert (asked.system.seqs_limit, asked.system.batched_tokens) == limits
