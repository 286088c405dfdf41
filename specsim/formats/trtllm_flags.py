"""Flags of `trtllm-serve` and the settings in the YAML file that it is given, by what they mean
for a prediction (`engines/commands/trtllm.toml`, `trtllm_settings.toml`).

The file wins over the flags, as in TensorRT-LLM. With attention data parallelism every GPU of tp is
a group of its own, and max_batch_size counts for each of them; here it counts per deployment.
"""

from collections.abc import Mapping

from specsim.data import data_table
from specsim.errors import FormatError, UsageError, shown
from specsim.formats.launch_flags import largest_batch
from specsim.formats.server_flags import (
    CommandValues,
    ParsedFlags,
    ServerCommand,
    ServerWords,
    check_speculation_known,
    longest,
    numeric_formats,
    share,
    sort_flags,
    those_set,
    whole,
    whole_number,
)
from specsim.formats.server_yaml import settings_table
from specsim.methods.base import METHODS
from specsim.methods.mtp import MtpMethod

Settings = Mapping[str, object]
_SPECULATION = "speculative_config"
# Tables of which parts are named by themselves.
_IN_PARTS = ("kv_cache_config", "cuda_graph_config", "quant_config", "moe_config",
             "scheduler_config")
_OLD = "pytorch_backend_config"  # up to 0.19: a table of what stands on top since
# Formats by the names of its quantisation where they are not those of others.
_FORMATS = {"fp8_block_scales": "fp8_block", "w4a16_awq": "int4", "w4a16_gptq": "int4",
            "w8a16": "int8_w8a16", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_fp8": "mxfp4_w4a8"}


def read_trtllm(server: ServerWords) -> ServerCommand:
    """The words behind `trtllm-serve`, with the file that they name."""
    flags = sort_flags(server)
    read, notes = flags.read, list[str]()
    named = read.pop("settings", None)
    settings = {} if named is None else settings_table(named, server.files)
    speculation = _settings(settings, flags, notes)
    tp = whole(read, "tp", "tensor_parallel_size") or 1
    stages = whole(read, "pp", "pipeline_parallel_size") or 1
    groups = tp if _on(read.get("groups")) else 1
    experts = whole(read, "ep", "moe_expert_parallel_size")
    split = whole(read, "moe tp", "moe_tensor_parallel_size")
    if experts is None and split is not None and tp % split == 0:
        experts = tp // split
    seqs = whole(read, "seqs", "max_batch_size")
    values = those_set(
        engine=server.engine_asked, tp=tp // groups if tp // groups > 1 else None,
        pp=stages if stages > 1 else None, attention_dp=groups if groups > 1 else None,
        ep=experts if experts is not None and experts > 1 else None,
        max_num_seqs=seqs * groups if seqs is not None else None,
        max_num_batched_tokens=whole(read, "tokens", "max_num_tokens"),
        gpu_memory_utilization=share(read, "memory", "free_gpu_memory_fraction"),
        routing="eplb" if "eplb" in read else None,
    )
    algorithm = read.get("quantization", "auto").lower()
    read["quantization"] = _FORMATS.get(algorithm, algorithm)
    values |= numeric_formats(read, flags.not_modelled) | _launch(read)
    if speculation is not None:
        values |= _speculation(speculation, server.version, flags)
    else:
        check_speculation_known(flags)
    if (backend := read.get("backend", "pytorch").lower()) != "pytorch":
        flags.not_modelled.append(f"--backend {backend[:40]} (priced as its PyTorch backend)")
    model = flags.positional[0] if flags.positional else ""
    return ServerCommand(
        "trtllm", model, values, tuple(flags.ignored), tuple(flags.not_modelled),
        tuple(flags.unknown), tuple(notes), longest(read, "max_seq_len"),
    )


def _on(text: str | None) -> bool:
    return (text or "").strip().lower() in ("true", "1")


def _settings(
    settings: Settings, flags: ParsedFlags, notes: list[str]
) -> Mapping[str, object] | None:
    """Sorts the file's settings into `flags`; its speculative_config, None without one."""
    table = data_table("engines", "commands/trtllm_settings.toml")
    items = dict(settings)
    old = items.pop(_OLD, None)
    if isinstance(old, Mapping):
        items = {**{str(key): value for key, value in old.items()}, **items}
    speculation = items.pop(_SPECULATION, None)
    if "cuda_graph_config" in items and items["cuda_graph_config"] is None:
        flags.read["no graphs"] = ""
    graphs = items.get("cuda_graph_config")
    if isinstance(graphs, Mapping) and graphs.get("enable_padding") is not True:
        flags.not_modelled.append("cuda_graph_config without enable_padding (batches between those "
                                  "captured run without graphs)")
    for path, value in _in_parts(items).items():
        if value is None:
            continue
        text = _text(value)
        same = table["unchanged"].get(path)
        if (name := table["read"].get(path)) is not None:
            before = flags.read.get(name)
            if before is not None and before != text:
                notes.append(f"the file's {path} {text[:40]} is taken, not {before[:40]}")
            flags.read[name] = text
        elif path in table["ignored"] or (same is not None and value in same):
            flags.ignored.append(path)
        elif same is not None or path.split(".", 1)[0] in table["not_modelled"]:
            flags.not_modelled.append(f"{path} {text}"[:80])
        else:
            flags.unknown.append(path[:80])
    if speculation is not None and not isinstance(speculation, Mapping):
        raise UsageError(
            f"--command has {_SPECULATION} {shown(speculation)}; it must be a table with a "
            "decoding_type"
        )
    return speculation


def _in_parts(items: Settings) -> dict[str, object]:
    """Settings by path. FormatError where a table was to stand."""
    found: dict[str, object] = {}
    for key, value in items.items():
        if key in _IN_PARTS and value is not None:
            if not isinstance(value, Mapping):
                raise FormatError(
                    f"--command has {key} {shown(value)} in its file; it must be a table"
                )
            found |= {f"{key}.{part}": inner for part, inner in value.items()}
        else:
            found[str(key)] = value
    return found


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "[]"
    return str(value)


def _launch(read: Mapping[str, str]) -> CommandValues:
    """CUDA graphs and whether steps are planned ahead."""
    largest = None
    for name in ("graphs", "graph sizes"):
        if name in read and read[name].strip() != "0":  # 0: its default
            largest = largest_batch(read[name])
    if "no graphs" in read or read.get("use graphs", "true").lower() == "false":
        largest = 0
    ahead = None
    if "overlap" in read:
        ahead = "on" if _on(read["overlap"]) else "off"
    if "no overlap" in read:
        ahead = "off" if _on(read["no overlap"]) else "on"
    return those_set(cuda_graph_max=largest, async_scheduling=ahead)


def _speculation(
    asked: Mapping[str, object], version: str, flags: ParsedFlags
) -> CommandValues:
    """Method, drafter and draft length of speculative_config."""
    fields = {str(key): value for key, value in asked.items() if value is not None}
    kind = str(fields.pop("decoding_type", ""))
    known = {_plain(name): m.name for m in METHODS.values()
             for name in m.server_names.get("trtllm", ())}
    method = known.get(_plain(kind))
    if method is None:
        raise UsageError(
            f"--command has decoding_type {kind[:40]!r}, which is not modelled; known: "
            "MTP, Eagle (EAGLE-3), NGram, DraftTarget"
        )
    counts = {name: whole_number(str(fields.pop(name)), name)
              for name in ("max_draft_len", "num_nextn_predict_layers") if name in fields}
    if method == MtpMethod.name and not counts:
        counts = {"num_nextn_predict_layers": 1}
    if len(set(counts.values())) != 1:
        raise UsageError(
            f"--command has {_SPECULATION} with "
            + (" and ".join(f"{name} {k}" for name, k in counts.items()) if counts
               else "no max_draft_len") + "; give one draft length"
        )
    drafts = [str(fields.pop(name)) for name in ("speculative_model_dir", "speculative_model")
              if name in fields]
    one = fields.pop("eagle3_one_model", True)
    if one is not True and not version.startswith("0."):
        flags.not_modelled.append(
            "eagle3_one_model false (--engine trtllm==0.21 prices two models)")
    rules = data_table("engines", "commands/trtllm_settings.toml")["speculation"]
    for name, value in fields.items():
        place = f"{_SPECULATION}.{name}"[:80]
        same = rules["unchanged"].get(name)
        if name in rules["ignored"] or (same is not None and value in same):
            flags.ignored.append(place)
        elif same is not None:
            flags.not_modelled.append(f"{place} {_text(value)}"[:80])
        else:
            flags.unknown.append(place)
    loads = not (METHODS[method].lookup or METHODS[method].in_checkpoint)
    draft = drafts[-1] if drafts and loads else None
    return those_set(method=method, k=next(iter(counts.values())), draft=draft)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
