"""What to type: the command line that starts a deployment as it was predicted.

`ready_flags` writes `vllm serve ...`, `python -m sglang.launch_server ...` or `trtllm-serve ...`
for a `System`, with every limit that the prediction rests on written out, so that an engine's own
default (256 running requests on a small GPU, 48 in SGLang as soon as it speculates) cannot change
it in silence. What
the engine's version would refuse is refused here, with the rule and the way out; what it would do
without telling is a warning.

Rules read from the sources of vLLM 0.25.1 and 0.33.0 (config/speculative.py, config/scheduler.py,
config/compilation.py) and SGLang 0.5.23 (server_args.py), both Apache-2.0.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specsim.analytic.system import System
from specsim.errors import SpecSimError, UsageError
from specsim.jsonable import json_text, picked
from specsim.latency.engine_profile import version_key
from specsim.latency.walks import not_running, version_meant
from specsim.methods.base import find_method
from specsim.model.catalogue import served_name
from specsim.planning.server_words import (
    TABLE_FIELD,
    parallel_sglang,
    parallel_vllm,
    seqs_vllm,
    sglang_speculation,
    vllm_config,
)
from specsim.planning.trtllm_words import (
    SETTINGS_FILE,
    in_shell,
    parallel_trtllm,
    trtllm_settings,
)

BatchTable = Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class ReadyCommand:
    """A command line and what to know about it. label, version: of the engine whose flags they
    are. args: the whole command, word by word.

    speculative_config: vLLM's JSON as an object, None without speculation and for others.
    settings: what the file holds that TensorRT-LLM's command names; `command` writes it first."""

    engine: str
    label: str
    version: str
    args: list[str]
    warnings: tuple[str, ...] = ()
    speculative_config: Mapping[str, object] | None = None
    settings: Mapping[str, object] | None = None

    @property
    def command(self) -> str:
        """The command line, quoted for a POSIX shell."""
        before = in_shell(self.settings) if self.settings is not None else ""
        return before + shlex.join(self.args)

    @property
    def written_for(self) -> str:
        """The engine and version whose flags these are: 'vLLM 0.25.1'."""
        return f"{self.label} {self.version}"

    def to_dict(self) -> dict[str, object]:
        return picked(
            self, "engine version written_for command args speculative_config settings warnings")


@dataclass(frozen=True)
class ServedNames:
    """What the flags name besides the system. None: as the catalogue and the engine's profile have
    it; max_model_len: longest request, 0: the model's."""

    model: str | None = None
    draft: str | None = None
    version: str | None = None
    max_model_len: int = 0


def ready_flags(
    system: System, *, table: BatchTable = (), model: str | None = None, draft: str | None = None,
    version: str | None = None, max_model_len: int = 0, prefix_caching: bool = True,
) -> ReadyCommand:
    """The command that starts `system`.

    table: draft length by batch size, ((first batch, last batch, k), ...).
    model, draft: the names or folders to serve (default: their repositories). version: the
    engine's version (default: `version_meant`). max_model_len: longest request, 0: the
    model's. UsageError where the engine's version would refuse the combination, where the method
    needs a drafter that nobody has published, and for engines whose command line is not known here.
    """
    server = system.engine.server
    _check_drafter(system, draft)
    rows = _check_table(system, table)
    asked = version or _version(system)
    warnings = _other_version(system, asked)
    served, convert = _model_words(system, model, warnings)
    if not server.command:
        raise UsageError(
            f"no command line is written for the engine {system.engine.name}; use --engine vllm, "
            "sglang or trtllm"
        )
    if why := not_running(system.engine, system.spec, system.profile):
        raise UsageError(why)
    _check_cache(system)
    budget = system.batched_tokens
    config = settings = None
    words, last = [*server.command, served], list[str]()
    if server.dialect == "trtllm":
        if rows:
            raise UsageError("TensorRT-LLM takes no table by batch size; use one draft length")
        seqs = -(-system.seqs_limit // system.parallel.attention_dp)
        words += parallel_trtllm(system)
        settings = trtllm_settings(system, draft, asked, warnings, prefix_caching=prefix_caching)
        last = ["--extra_llm_api_options", SETTINGS_FILE]
        if convert:
            warnings.append(f"priced in {convert}: serve a checkpoint in it, none is converted")
    else:
        vllm = server.dialect == "vllm"
        seqs = seqs_vllm(system, asked, budget, warnings) if vllm else system.seqs_limit
        words += ["--quantization", convert] if convert else []
        words += parallel_vllm(system, warnings) if vllm else parallel_sglang(system)
        cache = server.kv_cache[system.kv_dtype]
        words += ["--kv-cache-dtype", cache] if cache else []
        words += [] if prefix_caching else [server.no_prefix_caching]
        launch = system.engine.launch_words
        variables = [word for word in launch if "=" in word]
        words = [*(["env", *variables] if variables else []), *words]
        last = [word for word in launch if word not in variables]
        if system.routing is not None and system.routing.evened and system.parallel.ep > 1:
            last += [server.eplb] if server.eplb else []
        if system.speculative and vllm:
            config = vllm_config(system, rows, draft, asked, warnings)
            last += ["--speculative-config", json_text(config)]
        elif system.speculative:
            last += sglang_speculation(system, rows, draft, warnings)
    if max_model_len:
        words += [server.max_model_len, str(max_model_len)]
    words += [server.max_num_seqs, str(seqs), server.max_num_batched_tokens, str(budget)]
    if system.gpu_memory_utilization:
        words += [server.gpu_memory_utilization, f"{system.gpu_memory_utilization:g}"]
    words += last
    if (most := system.memory.state_requests) < seqs:
        slots = system.engine.held_states(system.setup)
        warnings.append(
            f"{server.label} runs {most} requests at a time here: each holds {slots} slots of "
            "recurrent state, in memory of their own; --mamba-full-memory-ratio gives that more, "
            f"{server.no_prefix_caching} leaves out the slots of prefixes"
        )
    _warn_of_graphs(system, seqs, warnings)
    return ReadyCommand(
        system.engine.name, server.label, asked, words, tuple(warnings), config, settings)


def flags_of(
    system: System, names: ServedNames, table: BatchTable = ()
) -> tuple[ReadyCommand | None, str]:
    """The flags, or None and why there are none."""
    drafter = system.setup.drafter
    named = names.draft if drafter is not None and drafter is not system.spec.mtp else None
    try:
        flags = ready_flags(
            system, table=table, model=names.model, draft=named, version=names.version,
            max_model_len=names.max_model_len,
        )
    except SpecSimError as error:
        return None, str(error)
    return flags, ""


def graphed_requests(system: System) -> int:
    """Largest decode batch that replays a CUDA graph: 512 // (1 + k) on Hopper under vLLM."""
    limit = system.engine.graph_limit(system.profile.arch)
    each = system.setup.verify_tokens if system.engine.graph_unit == "tokens" else 1
    return max(0, limit // each)


def adaptive_config(table: Sequence[Sequence[int]]) -> dict[str, object]:
    """The table as SGLang's --speculative-adaptive-config has it: by lowest batch, one candidate
    each (0.5.23, speculative/adaptive_spec_params.py)."""
    return {str(first): {"candidate_steps": [k]} for first, _, k in table}


def _version(system: System) -> str:
    """Of the command where none was asked for: figures of verify steps and flags are of one."""
    engine = system.engine
    if not system.speculative:
        return engine.version
    return version_meant(engine, system.spec, system.profile.arch)


def _other_version(system: System, asked: str) -> list[str]:
    """That the version asked for is none whose flags and costs are known here."""
    engine, label = system.engine, system.engine.server.label
    first, last = engine.since or engine.version, engine.server.read_to or engine.version
    wanted, known = version_key(asked), version_key(last)
    if wanted < version_key(first):
        return [f"{label} {asked} is older than all that is described here: figures and flags are "
                f"those of {engine.title}"]
    if wanted[: len(known)] > known:
        return [f"the flags of {label} were read up to {last}; {asked} may have changed some"]
    return []


# --- rules that every engine shares -------------------------------------------------------------


def _check_drafter(system: System, draft: str | None) -> None:
    setup, engine = system.setup, system.engine
    if not system.speculative:
        return
    listed = not engine.methods or setup.method in engine.methods
    if not (listed and setup.drafting.servable):
        raise UsageError(
            f"{engine.name} {engine.version} has no method {setup.method!r}; it has "
            f"{', '.join(m for m in engine.methods if find_method(m).servable)}"
        )
    drafter = setup.drafter
    networks, shipped = setup.drafting.drafter_kinds, setup.drafting.shipped(system.spec)
    if networks and drafter is None and shipped is None:
        raise UsageError(setup.drafting.missing_drafter(system.spec))
    if drafter is not None and drafter.source == "assumed" and "/" not in (
        draft or drafter.name
    ):
        raise UsageError(
            f"no {setup.method} head of {system.spec.name} is in the catalogue: its shape was "
            "assumed, so there is nothing to load; train one and name it with --draft"
        )


def _check_table(system: System, table: BatchTable) -> list[list[int]]:
    """The rows as vLLM wants them: from batch 1, rising, each k from 0 to the setup's k."""
    if not table:
        return []
    if not system.speculative:
        raise UsageError("a table by batch size needs a speculative method; name one or leave it")
    rows: list[list[int]] = []
    for first, last, k in table:
        start = rows[-1][1] + 1 if rows else 1
        if first != start or last < first:
            raise UsageError(
                f"{TABLE_FIELD} has the range [{first}, {last}]; ranges must follow each other "
                f"from 1, so this one starts at {start}"
            )
        if not 0 <= k <= system.setup.k:
            raise UsageError(
                f"{TABLE_FIELD} has k {k} from batch {first}, but the drafter runs at most "
                f"{system.setup.k}; vLLM would cut it: raise --k or lower it"
            )
        rows.append([first, last, k])
    return rows


def _model_words(system: System, model: str | None, warnings: list[str]) -> tuple[str, str]:
    """(what to serve, the format to convert to while loading or '')."""
    spec = system.spec
    name = model or served_name(spec.name)
    if "/" not in name:
        warnings.append(f"no repository of {name} is known: put the repository or folder you serve")
    by_rule = any("by the usual rules" in note for note in spec.notes)
    if not by_rule or spec.weights == "bf16":
        return name, ""
    if spec.weights == "fp8":
        return name, "fp8"  # both engines convert 16-bit weights to FP8 while they load
    warnings.append(
        f"priced in {spec.weights}, of which the catalogue knows no checkpoint: serve one of yours"
    )
    return name, ""


def _check_cache(system: System) -> None:
    server = system.engine.server
    if system.kv_dtype not in server.kv_cache:
        raise UsageError(
            f"{system.engine.name} has no KV cache of {system.kv_dtype}; use --kv "
            f"{' or '.join(server.kv_cache)}"
        )


def _warn_of_graphs(system: System, seqs: int, warnings: list[str]) -> None:
    covered = graphed_requests(system)
    if seqs <= covered or not system.engine.graph_max:
        return
    if not covered:
        warnings.append(
            f"no decode step fits the CUDA graphs, which end at "
            f"{system.engine.graph_limit(system.profile.arch)} tokens: a sequence has "
            f"{system.setup.verify_tokens}"
        )
        return
    if system.engine.graph_unit == "tokens":
        limit = system.engine.graph_limit(system.profile.arch)
        rule = f"graphs end at {limit} tokens, {limit} // {system.setup.verify_tokens}"
    else:
        rule = "graphs are captured up to that batch"
    warnings.append(
        f"above {covered} running requests decode steps leave the CUDA graphs ({rule}), but up to "
        f"{seqs} may run"
    )
