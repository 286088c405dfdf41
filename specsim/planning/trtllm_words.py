"""The words of `trtllm-serve` and the settings that its file holds: parallelism and limits are
flags, the cache, CUDA graphs, scheduling and speculation stand in YAML (here as JSON, which YAML
holds).

Names as in TensorRT-LLM 1.0 to 1.2 (commands/serve.py, llmapi/llm_args.py; recalled). Its PyTorch
backend speculates with MTP, EAGLE-3, n-grams and draft models.
"""

from collections.abc import Mapping

from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.jsonable import json_text
from specsim.latency.engine_profile import version_key
from specsim.methods.base import check_k
from specsim.planning.server_words import drafter_to_load

SETTINGS_FILE = "trtllm.yaml"
Settings = dict[str, object]
NGRAM = 4  # longest n-gram that is looked up, as in its documentation; it costs nothing here


def parallel_trtllm(system: System) -> list[str]:
    """UsageError for attention groups of several GPUs."""
    par = system.parallel
    if par.attention_dp > 1 and par.tp > 1:
        raise UsageError(
            f"TensorRT-LLM gives each GPU an attention group of its own, but {par.attention_dp} "
            f"groups of {par.tp} were asked for; use --tp 1 --attention-dp "
            f"{par.tp * par.attention_dp}"
        )
    sizes = {"--tp_size": par.gpus, "--pp_size": par.pp, "--ep_size": par.ep}
    return [word for flag, size in sizes.items() if size > 1 for word in (flag, str(size))]


def trtllm_settings(
    system: System, draft: str | None, version: str, warnings: list[str], *, prefix_caching: bool
) -> Settings:
    """What stands in the file. UsageError for what the engine does not run."""
    server, launch = system.engine.server, system.engine.launch_flags
    cache: Settings = {"dtype": server.kv_cache[system.kv_dtype]}
    own = system.engine.kv_dtype(system.spec, system.profile.arch)
    if cache["dtype"] == "auto" and own != system.kv_dtype:
        raise UsageError(
            f"TensorRT-LLM takes the cache of {system.spec.name} in {own}, and has no setting for "
            f"{system.kv_dtype}; leave out --kv"
        )
    if not prefix_caching:
        cache["enable_block_reuse"] = False
    found: Settings = {"kv_cache_config": cache}
    if system.parallel.attention_dp > 1:
        found["enable_attention_dp"] = True
    largest = system.engine.graph_limit(system.profile.arch)
    found["cuda_graph_config"] = (
        {"max_batch_size": largest, "enable_padding": True} if largest else None)
    if "ahead" in launch:
        found["disable_overlap_scheduler"] = launch["ahead"] == server.no_async_scheduling
    if system.routing is not None and system.routing.evened and system.parallel.ep > 1:
        warnings.append("experts are priced evened out: add moe_config.load_balancer with your "
                        "num_slots to the file")
    if system.speculative:
        found["speculative_config"] = _speculation(system, draft, version, warnings)
    return found


def _speculation(
    system: System, draft: str | None, version: str, warnings: list[str]
) -> Settings:
    setup, drafter = system.setup, system.setup.drafter
    method = setup.drafting
    if setup.tree_topk > 1:
        raise UsageError("no command with a tree is written for TensorRT-LLM; leave out --tree")
    if setup.parallel_drafting or method.drafts_at_once(drafter):
        raise UsageError("no command with drafts of one pass is written for TensorRT-LLM; use "
                         "--engine vllm or another drafter")
    if setup.draft_tp and setup.draft_tp != system.parallel.tp:
        raise UsageError("TensorRT-LLM splits a drafter as its target; leave out --draft-tp")
    check_k(system.engine, method, setup.k, drafter)
    found: Settings = {"decoding_type": method.server_name("trtllm", drafter)}
    loaded = drafter_to_load(system, draft, warnings)
    if method.in_checkpoint and loaded is not None:
        raise UsageError(f"no flags of TensorRT-LLM for {setup.method} with the drafter {loaded} "
                         "are known")
    found["num_nextn_predict_layers" if method.in_checkpoint else "max_draft_len"] = setup.k
    if loaded is not None:
        found["speculative_model_dir"] = loaded
    if method.lookup:
        found["max_matching_ngram_size"] = NGRAM
    elif method.adapts and not method.in_checkpoint:
        found["eagle3_one_model"] = version_key(version) >= (1,)
    return found


def in_shell(settings: Mapping[str, object]) -> str:
    """The words that write the file, in front of the command that names it."""
    text = json_text(settings).replace("'", "\\u0027")
    return f"echo '{text}' > {SETTINGS_FILE} && "
