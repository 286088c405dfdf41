"""The words of a command that are an engine's own: how the GPUs are split, how many requests run,
how speculation is said. `flags` writes the rest and puts them together; sources as there.
"""

from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import kind_of_target
from specsim.methods.base import check_k
from specsim.model.catalogue import served_name

TABLE_FIELD = "num_speculative_tokens_per_batch_size"
ADAPTIVE_FILE = "adaptive.json"
TIGHT = 0.75  # share of the token budget below which a warning is due


def takes_table(system: System) -> bool:
    """Whether the engine can follow a table of draft lengths by batch size with this method."""
    if "draft_table" in system.engine.server.gained:
        return True
    return bool(system.engine.scheduler.adaptive_tiers) and system.setup.drafting.adapts


def drafter_to_load(system: System, draft: str | None, warnings: list[str]) -> str | None:
    """What the server loads beside the model; None for lookups and heads inside the checkpoint."""
    drafter = system.setup.drafter
    if drafter is None or drafter is system.spec.mtp:
        return None
    name = draft or served_name(drafter.name)
    if draft is None and "/" not in name:
        warnings.append(f"no repository of {name} is known: put the drafter you load")
    return name


# --- vLLM ---------------------------------------------------------------------------------------


def parallel_vllm(system: System, warnings: list[str]) -> list[str]:
    par = system.parallel
    words = ["--tensor-parallel-size", str(par.tp)] if par.tp > 1 else []
    if par.pp > 1:
        words += ["--pipeline-parallel-size", str(par.pp)]
    if par.attention_dp > 1:
        words += ["--data-parallel-size", str(par.attention_dp)]
    if par.ep > 1:
        words += ["--enable-expert-parallel"]
        if par.ep != par.gpus:
            warnings.append(
                f"vLLM spreads experts over all {par.gpus} GPUs, but ep {par.ep} was predicted"
            )
    return words


def vllm_config(
    system: System, table: list[list[int]], draft: str | None, version: str, warnings: list[str]
) -> dict[str, object]:
    setup, drafter, server = system.setup, system.setup.drafter, system.engine.server
    method = setup.drafting
    missing = system.engine.missing(setup.method, version)
    if missing:
        raise UsageError(f"{missing}; use eagle3 or an older version")
    if setup.tree_topk > 1 and not server.trees:
        raise UsageError(
            f"{server.label} drafts chains, but the tree top-k is {setup.tree_topk}; leave out "
            "--tree or use --engine sglang"
        )
    if table and not server.offers("draft_table", version):
        raise UsageError(
            f"{TABLE_FIELD} is not in {server.label} {version} "
            f"({find_engine(system.engine.name).version} has it); use one draft length or a newer "
            "version"
        )
    check_k(system.engine, method, setup.k, drafter)
    config: dict[str, object] = {"method": method.server_name("vllm", drafter)}
    loaded = drafter_to_load(system, draft, warnings)
    if loaded is not None:
        config["model"] = loaded
    config["num_speculative_tokens"] = setup.k
    if setup.draft_tp and setup.draft_tp != system.parallel.tp:
        config["draft_tensor_parallel_size"] = setup.draft_tp
    if setup.parallel_drafting:
        config["parallel_drafting"] = True
    if table:
        config[TABLE_FIELD] = table
        warnings.append(
            "the table counts requests whose prompts are still running too, and k = 0 still runs "
            "the drafter once a step to keep its cache"
        )
        older = server.offers("older_runner", version) and not method.new_runner
        if older and kind_of_target(system.spec) in system.engine.piecewise_targets:
            warnings.append(
                f"{server.label} {version} runs such models on its older runner, where a table "
                "switches to piecewise CUDA graphs; what that costs is not priced"
            )
    elif setup.method in system.engine.scheduler.sync_methods:
        warnings.append(
            f"{server.label} schedules {setup.method} step by step (no asynchronous scheduling)"
        )
    warnings += method.server_notes("vllm", setup.k, drafter)
    return config


def seqs_vllm(system: System, version: str, tokens: int, warnings: list[str]) -> int:
    """max_num_seqs per attention group. Before 0.33 vLLM sets tokens of every step aside for the
    drafts of each of them; where nobody asked for a number and the default would take the token
    budget away so, the largest that leaves most of it."""
    server, setup = system.engine.server, system.setup
    seqs = -(-system.seqs_limit // system.parallel.attention_dp)
    reserves = system.speculative and server.offers("reserved_draft_tokens", version)
    each = setup.reserved_tokens if reserves else 0
    left = tokens - each * seqs
    if left < TIGHT * tokens:
        why = (
            f"{server.label} {version} sets aside {each} x max_num_seqs tokens of every step for "
            f"{setup.method}"
        )
        roomy = int((1 - TIGHT) * tokens) // each
        if not system.max_num_seqs and roomy >= 1:
            warnings.append(f"{why}: {roomy} sequences leave {tokens - each * roomy} of {tokens}")
            seqs = roomy
        elif left < 1:
            raise UsageError(
                f"{why}, which leaves none of {tokens} with {seqs} sequences; lower "
                f"--max-num-seqs or raise --max-num-batched-tokens above {each * seqs}"
            )
        else:
            warnings.append(
                f"{why}: {left} of {tokens} are left; a lower --max-num-seqs frees them"
            )
    if tokens < seqs:
        raise UsageError(
            f"max_num_batched_tokens is {tokens}, below max_num_seqs {seqs}, which vLLM refuses; "
            "raise the first or lower the second"
        )
    return seqs


# --- SGLang -------------------------------------------------------------------------------------


def parallel_sglang(system: System) -> list[str]:
    par = system.parallel
    words = ["--tp-size", str(par.gpus)] if par.gpus > 1 else []
    if par.pp > 1:
        words += ["--pp-size", str(par.pp)]
    if par.attention_dp > 1:
        words += ["--dp-size", str(par.attention_dp), "--enable-dp-attention"]
    return [*words, "--ep-size", str(par.ep)] if par.ep > 1 else words


def sglang_speculation(
    system: System, table: list[list[int]], draft: str | None, warnings: list[str]
) -> list[str]:
    setup, method, server = system.setup, system.setup.drafting, system.engine.server
    if table and not takes_table(system):
        raise UsageError(
            f"SGLang takes no table by batch size for {setup.method} drafts; use one draft length"
        )
    words = ["--speculative-algorithm", method.server_name("sglang", setup.drafter)]
    loaded = drafter_to_load(system, draft, warnings)
    if loaded is not None:
        words += ["--speculative-draft-model-path", loaded]
    if not method.one_number:
        words += ["--speculative-num-steps", str(setup.k)]
        words += ["--speculative-eagle-topk", str(setup.tree_topk)]
    words += ["--speculative-num-draft-tokens", str(setup.verify_tokens)]
    if not system.max_num_seqs and system.engine.spec_max_num_seqs:
        warnings.append(
            f"SGLang runs {system.engine.spec_max_num_seqs} requests at a time once it "
            f"speculates; raise {server.max_num_seqs} if the cache holds more"
        )
    if table:
        words += ["--speculative-adaptive", "--speculative-adaptive-config", ADAPTIVE_FILE]
        warnings.append(
            f"save the table as {ADAPTIVE_FILE}; SGLang looks it up with the batch that its CUDA "
            "graph is padded to"
        )
    elif method.adapts and setup.tree_topk == 1:
        warnings.append(
            "--speculative-adaptive would shorten the drafts by batch size and acceptance; "
            "`specsim simulate --adaptive` shows it"
        )
    return words
