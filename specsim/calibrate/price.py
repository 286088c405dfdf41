"""What the model says a measured point takes: records on one side, roofline on the other.

A kernel point (parts A to D, F) is priced by the kernel functions alone, with the small kernels
that the measurement includes:

gemm        the product; 'gate_up' with the gate's activation
attention   rotary embedding and norms of the new rows, then attention over the cache
            (on a CPU both without the launch of the small kernel: it is one call there, and what a
            launch costs between kernels of other kinds, whose threads have gone to sleep, is not
            seen in a loop of one kind; prompts show it)
sample      one pass over k + 1 rows of logits per sequence (greedy; see below)
moe         the router's product and the routed experts, evenly popular
launch      a chain of elementwise kernels without data; GPUs only
stream, gemm_peak    an elementwise kernel and a product; GPUs only. On a CPU they set the peaks

Prompts (G) are priced as the target's pass and the draw of the first token, steps (E) as whole
engine steps. Sampling at a temperature is not priced: the model of a step knows greedy steps only.

Units: seconds, bytes, tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specsim.calibrate.records import Measurement, RunHeader
from specsim.errors import FormatError, ModelConfigError
from specsim.formats.hf_config import model_from_config
from specsim.formats.hf_drafters import drafter_from_config
from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.methods.registry import method_name
from specsim.model.catalogue import variant
from specsim.model.drafter_counts import drafter_from_spec
from specsim.model.spec import Drafter, ModelSpec
from specsim.ops.shapes import AttentionDecode, Elementwise, Experts, Gemm, Sample
from specsim.ops.work import UNIFORM
from specsim.roofline.attention import attn_decode
from specsim.roofline.gemm import gemm
from specsim.roofline.moe import moe
from specsim.roofline.simple import elementwise, sample

HEAD_VOCAB = 8192  # rows of the random head that `specsim measure` times steps with
ACT_BYTES = 2.0  # activations between kernels

# Kernel tables that a kind of point depends on (experts: see `tables_of`).
_TABLES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("gemm.bf16", "elementwise"),
    "gemm_peak": ("gemm.bf16",),
    "attention": ("attn_decode.bf16", "elementwise"),
    "sample": ("sample",),
    "moe": ("gemm.bf16", "moe.bf16"),
    "launch": ("elementwise",),
    "stream": ("elementwise",),
    "prefill": ("gemm.bf16", "attn_prefill", "elementwise", "sample"),
}


def tables_of(kind: str) -> tuple[str, ...]:
    """Kernel tables whose parameters decide the predicted time of a kind of point."""
    return _TABLES.get(kind, ())


@dataclass
class Models:
    """Shapes of the models in the headers of records, read once per header."""

    _specs: dict[tuple[int, str, str], ModelSpec] = field(default_factory=dict)

    def spec(self, run: RunHeader, name: str, dtype: str) -> ModelSpec:
        """FormatError for a model that the header does not describe."""
        key = (id(run), name, dtype)
        found = self._specs.get(key)
        if found is None:
            found = self._specs[key] = _read_spec(run, name, dtype)
        return found

    def drafter(self, run: RunHeader, record: Measurement, target: ModelSpec) -> Drafter | None:
        """The network that drafts in a step, None for lookups and plain steps."""
        method = str(record.shape["method"])
        if method == "draft_model":
            name = str(record.shape.get("draft_model", ""))
            return drafter_from_spec(self.spec(run, name, str(record.shape["dtype"])))
        return self.head(run, str(record.shape["model"]), target) if method == "eagle" else None

    def head(self, run: RunHeader, name: str, target: ModelSpec) -> Drafter:
        """The one-layer head that the measured decoder drafts with."""
        config = dict(_config(run, name)) | {"num_hidden_layers": 1}
        made = drafter_from_config(config, "head", kind="eagle", target=target)
        return replace(made, own_head=True, draft_vocab=min(HEAD_VOCAB, target.vocab))


def _config(run: RunHeader, name: str) -> Mapping[str, object]:
    entry = run.models.get(name)
    config = entry.get("config") if isinstance(entry, dict) else None
    if not isinstance(config, dict):
        raise FormatError(
            f"the records speak of model {name[:60]!r}, which their header does not describe "
            f"(it has {', '.join(map(str, run.models)) or 'none'}); the file is incomplete"
        )
    return config


def _read_spec(run: RunHeader, name: str, dtype: str) -> ModelSpec:
    try:
        spec = model_from_config(dict(_config(run, name)), name)
    except ModelConfigError as error:
        raise FormatError(f"model {name[:60]!r} in the records' header: {error}") from None
    return variant(spec, dtype) if dtype == "fp32" and spec.weights != "fp32" else spec


@dataclass
class RecordPricer:
    """Prices records on one profile under one engine. Make a new one when the profile changes."""

    profile: HardwareProfile
    engine: EngineProfile
    models: Models
    _latency: dict[object, LatencyModel] = field(default_factory=dict)

    def seconds(self, record: Measurement) -> float | None:
        """Predicted seconds; None for what the model does not price."""
        if record.kind == "step":
            return self.step(record)
        if record.kind == "prefill":
            return self._prefill(record)
        return kernel_seconds(record, self.profile)

    def step(self, record: Measurement) -> float:
        """A whole engine step: seconds from its start to its tokens on the host."""
        model, shape = self.step_shape(record)
        return model.seconds(shape)

    def step_shape(self, record: Measurement) -> tuple[LatencyModel, StepShape]:
        s, k, seqs = record.shape, int(record.shape["k"]), int(record.shape["seqs"])
        ctx = record.values.get("mean_ctx", float(s["ctx"]))
        method = str(s["method"])
        name = method_name(method) if k else "none"
        model = self.latency(record, name, k)
        return model, StepShape(seqs, k + 1, seqs * ctx, (), k)

    def latency(self, record: Measurement, method: str, k: int) -> LatencyModel:
        """The latency model of the record's model, speculating or not."""
        s, run = record.shape, _run(record)
        dtype = str(s["dtype"])
        key = (id(run), s["model"], s.get("draft_model"), method, k, dtype)
        found = self._latency.get(key)
        if found is None:
            spec = self.models.spec(run, str(s["model"]), dtype)
            setup = SpecSetup()
            if method != "none":
                setup = SpecSetup(method, k, self.models.drafter(run, record, spec))
            instance = Instance(spec, self.profile, self.engine, kv_dtype=dtype, setup=setup)
            found = self._latency[key] = LatencyModel(instance, routing=UNIFORM)
        return found

    def _prefill(self, record: Measurement) -> float:
        """The device's part of a prompt chunk's step."""
        s = record.shape
        new, cached = int(s["new"]), int(s["cached"])
        last = new + cached >= int(s.get("prompt_len", new + cached))
        model = self.latency(record, "none", 0)
        priced = model.step(StepShape(prefill=(PrefillChunk(new, cached, last),)))
        return priced.target_s + priced.sample_s


def _run(record: Measurement) -> RunHeader:
    if record.run is None:
        raise FormatError("a record without its header cannot be priced; use `read_records`")
    return record.run


def kernel_seconds(record: Measurement, device: HardwareProfile) -> float | None:
    """Predicted seconds of one call of a kernel point; None for what is not priced."""
    s, kind = record.shape, record.kind
    if kind == "gemm":
        m, n, k = float(s["m"]), float(s["n"]), float(s["k"])
        found = gemm(device, Gemm(m, n, k, str(s["dtype"]))).seconds
        if s["matrix"] == "gate_up":
            found += _small(device, 1.5 * ACT_BYTES * m * n)
        return found
    if kind == "attention":
        rows = float(s["seqs"]) * float(s["q_len"])
        heads, kv, dim = float(s["heads"]), float(s["kv_heads"]), int(s["head_dim"])
        rope = _small(device, 2 * ACT_BYTES * rows * (heads + 2 * kv) * dim)
        dtype = str(s["dtype"])
        shape = AttentionDecode(
            float(s["seqs"]), int(s["q_len"]), heads, kv, dim, float(s["ctx"]), dtype
        )
        return rope + attn_decode(device, shape).seconds
    if kind == "sample":
        if s["mode"] != "greedy":
            return None
        rows = float(s["rows"]) * (float(s["k"]) + 1)
        return sample(device, Sample(rows, int(s["vocab"]))).seconds
    if kind == "moe":
        tokens, hidden = float(s["tokens"]), float(s["hidden"])
        experts, dtype = float(s["experts"]), str(s["dtype"])
        router = gemm(device, Gemm(tokens, experts, hidden, dtype)).seconds
        routed = Experts(
            tokens, hidden, float(s["inter"]), float(s["top_k"]), experts, dtype,
            distribution="uniform",
        )
        return router + moe(device, routed).seconds
    if device.kind == "cpu":
        return None  # the ceilings of a CPU are the profile's peaks, see `calibrate.peaks`
    if kind == "launch":
        return float(s["nodes"]) * elementwise(device, Elementwise(8.0)).seconds
    if kind == "stream":
        moved = float(s["bytes"]) * (1 if s["op"] == "read" else 2)
        return elementwise(device, Elementwise(moved)).seconds
    if kind == "gemm_peak":
        product = Gemm(float(s["m"]), float(s["n"]), float(s["k"]), str(s["dtype"]))
        return gemm(device, product).seconds
    return None


def _small(device: HardwareProfile, moved: float) -> float:
    """A small kernel that was timed together with a large one."""
    found = elementwise(device, Elementwise(moved))
    return found.mem_s if device.kind == "cpu" else found.seconds


def gemm_flop_per_s(record: Measurement, seconds: float) -> float:
    """FLOP/s of a product."""
    s = record.shape
    return 2.0 * float(s["m"]) * float(s["n"]) * float(s["k"]) / seconds
