"""EngineProfile: what a serving engine adds to the kernels, and the rules it serves by.

Host times are wall seconds per engine step that the device does not hide. They are read from
`engines/*.toml` (`latency.engine`); each file names its engine, the versions it stands for, and the
source of every figure. `overheads` are the only fitted numbers of an engine; everything else is
read from its source code or documentation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from specsim.errors import UsageError
from specsim.latency.overheads import Overheads
from specsim.methods.base import METHODS, SpecSetup
from specsim.model.mixers import LatentAttention, Mixer
from specsim.model.spec import ModelSpec

# Which kernel sums over GPUs: (where, path, ((up to GPUs, up to MiB), ...)).
SumRule = tuple[str, str, tuple[tuple[int, float], ...]]


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How the engine plans its steps and keeps its cache, where that is not vLLM's newest way.

    async_scheduling: the next step is planned before this one's tokens are known; not for
        sync_methods, whose drafts need those tokens, nor for sync_targets (TARGET_KINDS), nor on
        sync_devices (kinds of device).
    prefix_caching: prefixes are kept when nobody asks; prefix_caching_with_state: also for models
        with a recurrent state, whose snapshots would have to be kept too.
    uniform_pages: layers of unlike size per token get blocks of one size, so that narrower layers
        have longer ones, and groups of equal numbers of layers share one pool of them; group_slack:
        so many times as many layers of one kind as of the fewest still make one group.
    frees_windows: layers with a window give up what it has passed; keeps_last_window: for later
        prompts they keep only what the end of a prompt needs, where prefixes are kept at all.
    victim: whom preemption takes, 'last' (admitted last) or 'fewest_tokens'.
    reserve_full_isl: a prompt is admitted only if all of it fits now (None: where prompts and
        decoding share steps).
    output_reserve: share of the tokens that running requests may still write for which admission
        keeps blocks free; it falls to output_reserve_min.
    adaptive_tiers: draft lengths by batch size that the engine chooses from by itself,
        ((from this many requests, (k, ...)), ...).
    """

    async_scheduling: bool = True
    sync_methods: tuple[str, ...] = ()
    sync_targets: tuple[str, ...] = ()
    sync_devices: tuple[str, ...] = ()
    prefix_caching: bool = True
    prefix_caching_with_state: bool = True
    uniform_pages: bool = False
    group_slack: float = 1.5
    frees_windows: bool = True
    keeps_last_window: bool = False
    victim: Literal["last", "fewest_tokens"] = "last"
    reserve_full_isl: bool | None = None
    output_reserve: float = 0.0
    output_reserve_min: float = 0.0
    adaptive_tiers: tuple[tuple[int, tuple[int, ...]], ...] = ()


# What versions of one engine differ in besides methods: a table of draft lengths by batch size, an
# acceptance that can be dictated, tokens set aside for drafts, a runner of its own for some models.
DraftGraphs = Literal["whole", "pieces", "none"]  # of a pass; between its attentions; no graph
# Verify steps of latent attention without a kernel that packs queries (`latency.walks`), and the
# first version in which it is no more so ('': always).
LatentVerify = Literal["", "expanded", "rows", "walked"]
LatentRule = tuple[str, LatentVerify, str]
TARGET_KINDS = ("dense", "routed", "recurrent")
FEATURES = ("draft_table", "synthetic_acceptance", "reserved_draft_tokens", "older_runner")


@dataclass(frozen=True, slots=True)
class Server:
    """The engine's server: its command line, and what its versions differ in.

    label: the engine's name in sentences. command: the words in front of the model, empty where
    no command line is written for the engine. dialect: whose flags it takes besides those below,
        and how speculation is said to it.
    gained, lost: method or feature -> first version that has it, that has it no more. A feature
    that is in neither is not there.
    trees: whether it drafts more than chains.
    read_to: the newest version whose flags were read.
    vendors: of the devices that it runs on; empty: of any. no_sparse_latent: architectures without
        a kernel for latent attention that picks tokens (DeepSeek-V3.2).
    Flags, by what they set: max_num_seqs, max_num_batched_tokens, gpu_memory_utilization,
    max_model_len, no_prefix_caching, graph_max (the largest batch of a CUDA graph), no_graphs,
    async_scheduling, no_async_scheduling, eplb (experts evened out over GPUs). kv_cache: cache
    dtype -> its name here, '' for the default.
    fixed_acceptance: environment variable that dictates the acceptance length.
    random_lengths: whether its own benchmark draws lengths from 1 up to what is asked for, where
        vLLM's sends just that.
    metrics: shell command that reads the counters of drafts from a running server.
    """

    label: str = ""
    command: tuple[str, ...] = ()
    dialect: Literal["", "vllm", "sglang", "trtllm"] = ""
    gained: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    trees: bool = True
    read_to: str = ""
    vendors: tuple[str, ...] = ()
    no_sparse_latent: tuple[str, ...] = ()
    max_num_seqs: str = ""
    max_num_batched_tokens: str = ""
    gpu_memory_utilization: str = ""
    max_model_len: str = ""
    no_prefix_caching: str = ""
    graph_max: str = ""
    no_graphs: str = ""
    async_scheduling: str = ""
    no_async_scheduling: str = ""
    eplb: str = ""
    kv_cache: Mapping[str, str] = field(default_factory=dict)
    fixed_acceptance: str = ""
    random_lengths: bool = False
    metrics: str = ""

    def offers(self, what: str, version: str) -> bool:
        """Whether a feature, or a method that the profile lists, is in that version."""
        asked = version_key(version)
        if what in self.lost and asked >= version_key(self.lost[what]):
            return False
        if what in self.gained:
            return asked >= version_key(self.gained[what])
        return what in self.lost or what not in FEATURES


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine at one version.

    since: first version the profile stands for, where that is older than `version`.
    current_through: year until whose end people ran it, so that a measurement of that time which
        states no version is taken for one of it (0: still current).
    graph_unit: 'tokens' or 'requests': what graph_max counts. Above it decode runs eagerly; 0:
        no graphs, nor compiled code between them.
    graph_max_by_arch: exceptions by hardware arch.
    prompt_op_by_arch: factors on prompt_op_s by hardware arch (launches cost more under ROCm).
    fp8_choosers: architectures where the cache of latent layers that choose what they attend to is
        of 8 bits unless something else is asked for.
    fp8_cache_weights: weight formats whose checkpoints for this engine come with scales of an fp8
        cache, which it then uses unless something else is asked for.
    share_of_free: gpu_memory_utilization is the cache's share of what weights and work space leave
        of the memory; else the share of all memory that they have together.
    groups_share_budget: whether max_num_batched_tokens is that of all attention groups together,
        an equal part each; else each group has as much.
    by_memory: [below so many GiB of device memory, max_num_seqs, max_num_batched_tokens,
        graph_max, graph_max from tp 4 on], ...: other defaults (0: as elsewhere), by the first row
        that a device falls under. small_devices: the last row holds for devices with one of these
        words in their name, too.
    inherit: the packaged profile that gave what its file leaves out, '' for none.
    eager_drafters: methods whose draft passes run without CUDA graphs.
    piecewise_targets: kinds of target (TARGET_KINDS) whose drafters replay graphs only between
        attentions, so that the host prepares every pass.
    spec_max_num_seqs: running requests when speculation is on and nothing was asked for (0: same).
    state_copies: extra passes over a recurrent state to commit an accepted snapshot.
    state_slots, spec_state_slots: slots that a running request of a recurrent model has for its
        state and those of its prefixes, without speculation and with it; more than one: in memory
        of their own, state_ratio times what tokens have. Those of drafts come on top.
    state_dtypes: family -> dtype of its recurrent states, where the engine keeps them otherwise
        than the checkpoint says.
    draft_model_first_rows: rows per sequence of a draft model's first pass (0: as vLLM, all that
        was verified and the bonus token).
    separate_passes: every prompt chunk and the decoding batch of a step run as passes of their
        own, each reading the weights, instead of as one.
    unsplit_verify_families: model families whose attention runs on a kernel that splits the cache
        over thread blocks only when few sequences ask one query each (see `latency.unsplit`): a
        verify step walks the whole context in one block, at unsplit_verify_s_per_token per cached
        token and layer (16-bit cache, heads 512 wide); unsplit_blocks_per_sm blocks share an SM.
    flash2_arches: architectures where attention to a 16-bit cache runs on FlashAttention 2, which
        splits it between single queries alone (see `latency.unsplit`). rocm_arches: where it runs
        on vLLM's kernels for ROCm, which do so too.
    latent_verify: (architecture, way, before version), ...: how verify steps of latent attention
        run where no kernel packs their queries: the first rule that holds (see `latency.walks`).
    asked: the version that was asked for, '' where none was: then it is the newest.
    unsplit_verify_except: 'FAMILY ARCH', 'FAMILY ARCH DTYPE' of the cache, or both with the widest
        head: where these families run on another kernel, which splits the cache.
    extend_families: families whose verify steps run on SGLang's Triton kernel for prompts but on
        data-centre Blackwell (see `latency.walks`).
    all_reduce: rules by which the kernel is chosen that sums over GPUs (see `latency.collectives`).
    second_stream_tokens: up to so many tokens a shared expert runs beside the routed ones.
    whole_expert_formats: weight formats whose routed-expert kernel streams every expert of the GPU
        in every step, whether a token chose it or not.
    eight_bit_experts: weight formats whose routed experts are multiplied with 8-bit activations
        where the device has a unit for that (data-centre Blackwell), else with 16-bit ones.
    kernel_scale, drafter_scale: factors on the kernel seconds of the target (with sampling) and of
        the drafter, from a calibration on one server (1: as the device's profile has them).
    expert_scale: a further factor on those of the target's routed experts.
    k_multiple_of_n_predict: MTP draft length must be a multiple of the heads in the checkpoint.
    launch_flags: by what was wanted otherwise than the server's own (`graphs`, `ahead`), what it is
        told (`launched`).
    """

    name: str
    version: str
    since: str = ""
    current_through: int = 0
    title: str = ""
    aliases: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    overheads: Overheads = Overheads()
    graph_unit: Literal["tokens", "requests"] = "tokens"
    graph_max: int = 512
    graph_max_by_arch: Mapping[str, int] = field(default_factory=dict)
    prompt_op_by_arch: Mapping[str, float] = field(default_factory=dict)
    fp8_choosers: tuple[str, ...] = ()
    fp8_cache_weights: tuple[str, ...] = ()
    share_of_free: bool = False
    groups_share_budget: bool = False
    by_memory: tuple[tuple[int, int, int, int, int], ...] = ()
    small_devices: tuple[str, ...] = ()
    inherit: str = ""
    eager_drafters: tuple[str, ...] = ()
    piecewise_targets: tuple[str, ...] = ()
    max_num_seqs: int = 1024
    spec_max_num_seqs: int = 0
    max_num_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.92
    block_size: int = 16
    chunked_prefill: bool = True
    mixed_steps: bool = True
    state_copies: float = 0.0
    state_slots: int = 1
    spec_state_slots: int = 1
    state_ratio: float = 0.0
    state_dtypes: Mapping[str, str] = field(default_factory=dict)
    draft_model_first_rows: int = 0
    separate_passes: bool = False
    max_k: int = 0
    k_multiple_of_n_predict: bool = True
    scheduler: Scheduler = Scheduler()
    server: Server = field(default_factory=Server)
    kernel_variant: str = ""  # preferred suffix of kernel tables, e.g. 'sglang'
    unsplit_verify_families: tuple[str, ...] = ()
    flash2_arches: tuple[str, ...] = ()
    rocm_arches: tuple[str, ...] = ()
    extend_families: tuple[str, ...] = ()
    latent_verify: tuple[LatentRule, ...] = ()
    asked: str = ""
    unsplit_verify_except: tuple[str, ...] = ()
    unsplit_verify_s_per_token: float = 0.0
    unsplit_blocks_per_sm: float = 2.0
    all_reduce: tuple[SumRule, ...] = ()
    second_stream_tokens: int = 0
    whole_expert_formats: tuple[str, ...] = ()
    eight_bit_experts: tuple[str, ...] = ()
    kernel_scale: float = 1.0
    drafter_scale: float = 1.0
    expert_scale: float = 1.0
    sources: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    launch_flags: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        scales = (self.kernel_scale, self.drafter_scale, self.expert_scale)
        return hash((self.name, self.version, self.overheads, scales))

    def graph_limit(self, arch: str) -> int:
        return self.graph_max_by_arch.get(arch, self.graph_max)

    def on(self, name: str, mem_bytes: float, tp: int = 1) -> "EngineProfile":
        """With the defaults that the engine takes on devices of that name and memory (bytes)."""
        rows = [row for row in self.by_memory if mem_bytes < row[0] * 2**30]
        if not rows and any(word in name for word in self.small_devices):
            rows = list(self.by_memory[-1:])
        if not rows:
            return self
        _, seqs, tokens, graphs, wide_graphs = rows[0]
        return replace(
            self,
            max_num_seqs=seqs or self.max_num_seqs,
            max_num_batched_tokens=tokens or self.max_num_batched_tokens,
            graph_max=(wide_graphs if tp >= 4 else graphs) or self.graph_max,
        )

    def launched(self, graph_max: int | None, ahead: bool | None) -> "EngineProfile":
        """With CUDA graphs up to another batch (in graph_unit; 0: none) and steps planned ahead or
        not, whatever its defaults; None: as they are. UsageError where its server has no flag for
        that.

        An engine told to plan ahead does so with every drafter but a lookup, whose drafts need the
        tokens of the step before."""
        server, found, flags = self.server, self, dict(self.launch_flags)
        if graph_max is not None:
            self._needs(server.no_graphs, "the batches of CUDA graphs", "--cuda-graph-max")
            flags["graphs"] = f"{server.graph_max} {graph_max}" if graph_max else server.no_graphs
            found = replace(
                found, graph_max=graph_max,
                graph_max_by_arch=dict.fromkeys(self.graph_max_by_arch, graph_max),
            )
        if ahead is not None:
            flag = server.async_scheduling if ahead else server.no_async_scheduling
            self._needs(flag, "whether it plans steps ahead", "--async-scheduling")
            flags["ahead"] = flag
            rules = self.scheduler
            lookups = tuple(m for m in rules.sync_methods if METHODS[m].lookup)
            found = replace(found, scheduler=replace(
                rules, async_scheduling=ahead,
                sync_methods=lookups if ahead else rules.sync_methods,
            ))
        return replace(found, launch_flags=flags)

    @property
    def described(self) -> str:
        """For people: its title, and what its server is told beyond it."""
        flags = f" with {' '.join(self.launch_words)}" if self.launch_flags else ""
        return f"{self.title or self.name}{flags}"

    @property
    def launch_words(self) -> list[str]:
        """Flags of the server's command, and variables in front of it, of `launch_flags`."""
        return " ".join(self.launch_flags.values()).split()

    def _needs(self, flag: str, what: str, option: str) -> None:
        if not flag:
            raise UsageError(
                f"the server of {self.name} {self.version} has no flag for {what}; leave out "
                f"{option}"
            )

    def kv_dtype(self, spec: ModelSpec, arch: str) -> str:
        """Cache dtype of a model where none is asked for."""
        chooses = any(isinstance(g.mixer, LatentAttention) and g.mixer.index_topk
                      for g in spec.layers)
        narrow = (chooses and arch in self.fp8_choosers) or spec.weights in self.fp8_cache_weights
        return "fp8" if narrow else spec.default_kv_dtype

    def keeps(self, spec: ModelSpec) -> ModelSpec:
        """The model with recurrent states of the dtype that the engine keeps them in."""
        dtype = self.state_dtypes.get(spec.family)
        if dtype is None or all(_dtype_of(g.mixer) in ("", dtype) for g in spec.layers):
            return spec
        layers = tuple(
            replace(g, mixer=replace(g.mixer, state_dtype=dtype))  # type: ignore[type-var]
            if _dtype_of(g.mixer) else g
            for g in spec.layers
        )
        return replace(spec, layers=layers)

    def latent_way(self, arch: str) -> LatentVerify:
        """How verify steps of latent attention run; '': packed."""
        asked = version_key(self.asked) if self.asked else (10**9,)
        return next((
            way for where, way, before in self.latent_verify
            if where == arch and (not before or asked < version_key(before))
        ), "")

    def plans_ahead(self, method: str, target: ModelSpec, device_kind: str) -> bool:
        """Whether the next step is planned before this one's tokens are known."""
        rules = self.scheduler
        waits = (
            method in rules.sync_methods or device_kind in rules.sync_devices
            or kind_of_target(target) in rules.sync_targets
        )
        return rules.async_scheduling and not waits

    def held_states(self, setup: SpecSetup) -> int:
        """Slots of recurrent state of a running request: those of drafts hold the state behind
        each verified token, and the live one among them where none is copied back."""
        if not setup.speculates:
            return self.state_slots
        return self.spec_state_slots + (setup.verify_tokens if self.state_copies else setup.k)

    def state_share(self, setup: SpecSetup) -> float:
        """Of the memory beside the weights, what only states may use."""
        slots = self.spec_state_slots if setup.speculates else self.state_slots
        return self.state_ratio / (1.0 + self.state_ratio) if slots > 1 else 0.0

    def draft_graphs(self, setup: SpecSetup, target: ModelSpec) -> DraftGraphs:
        """How the draft passes for a target replay CUDA graphs."""
        if setup.method in self.eager_drafters or not self.graph_max:
            return "none"
        pieces = kind_of_target(target) in self.piecewise_targets
        pieces = pieces and not setup.drafting.new_runner
        return "pieces" if pieces else "whole"

    def missing(self, method: str, version: str | None) -> str:
        """Why a version newer than the profile does not have a method; '' where it has."""
        if version is None or self.server.offers(method, version):
            return ""
        return (
            f"{self.server.label} {version} has no method {method!r} any more "
            f"({self.version} has it)"
        )


def _dtype_of(mixer: Mixer | None) -> str:
    """Of its recurrent state; '' without."""
    return getattr(mixer, "state_dtype", "")


def kind_of_target(spec: ModelSpec) -> str:
    """One of TARGET_KINDS."""
    if any(group.mixer is not None and group.mixer.state() is not None for group in spec.layers):
        return "recurrent"
    return "routed" if spec.has_experts else "dense"


def version_key(text: str) -> tuple[int, ...]:
    """'0.25.1' as (0, 25, 1), to compare; anything behind a part's digits is left out."""
    digits = []
    for part in text.strip().lower().lstrip("v").split(".")[:3]:
        number = re.match(r"\d*", part)  # '0rc1' is 0
        digits.append(int(number.group() or 0) if number else 0)
    return tuple(digits)
