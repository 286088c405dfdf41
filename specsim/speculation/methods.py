"""From what a user asks for ('mtp, k 3') to a SpecSetup, with the rules of model and engine.

Every rule that refuses says which it is: a method the engine's version does not have, an MTP head
the checkpoint lacks, a draft length that is not a multiple of the physical MTP layers (vLLM), a
block drafter asked for more tokens than its block, a drafter with another vocabulary.
"""

from difflib import get_close_matches

from specsim.errors import UsageError
from specsim.latency.draft import LOOKUP, METHODS, SpecSetup
from specsim.latency.engine import EngineProfile
from specsim.model.catalogue import (
    default_drafter,
    find_drafter,
    find_model,
    has_drafter,
    has_model,
    with_target_head,
)
from specsim.model.counts import drafter_from_spec
from specsim.model.spec import Drafter, ModelSpec

MAX_K = 64
_ALIASES = {
    "draft": "draft-model",
    "draft_model": "draft-model",
    "standalone": "draft-model",
    "nextn": "mtp",
    "eagle-3": "eagle3",
    "eagle_3": "eagle3",
    "prompt-lookup": "ngram",
    "lookup": "ngram",
    "n-gram": "ngram",
    "early_exit": "early-exit",
    "layer-skip": "early-exit",
    "eagle-1": "eagle",
    "eagle1": "eagle",
    "eagle-2": "eagle",
    "eagle2": "eagle",
    "n_gram": "ngram",
    "suffix-decoding": "suffix",
    "off": "none",
    "no": "none",
}
# Drafter kinds (what the weights are) that a method (how the engine runs them) accepts.
_KINDS = {
    "mtp": ("mtp", "gemma-assistant"),
    "draft-model": ("model", "gemma-assistant"),
    "eagle": ("eagle",),
    "eagle3": ("eagle3", "p-eagle"),
    "medusa": ("medusa",),
    "dflash": ("dflash",),
    "dspark": ("dspark",),
}
_CATALOGUE_KIND = {"draft-model": ("draft-model", "gemma-assistant")}


def method_name(text: str) -> str:
    """The canonical name of a method as people and engines spell it; UsageError when unknown."""
    key = text.strip().lower()
    if key.endswith("_mtp"):  # vLLM's per-family spellings, e.g. qwen3_5_mtp
        key = "mtp"
    key = _ALIASES.get(key, key)
    if key not in METHODS:
        near = get_close_matches(key, METHODS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"method {text!r} is not known; {hint}methods: {', '.join(METHODS)}")
    return key


def method_of(drafter: Drafter) -> str:
    """The method that runs a drafter, when a user names the drafter alone."""
    return next(method for method, kinds in _KINDS.items() if drafter.kind in kinds)


def resolve_setup(
    spec: ModelSpec,
    engine: EngineProfile,
    method: str,
    k: int | None = None,
    *,
    draft: str | Drafter | None = None,
    tree_topk: int = 1,
    tree_tokens: int = 0,
    exit_layers: int = 0,
    draft_tp: int = 0,
    draft_share: float = 1.0,
    parallel_drafting: bool = False,
) -> SpecSetup:
    """A checked SpecSetup. k None takes the natural length of the method (see `default_k`).

    draft: a drafter, or its name (for draft-model also any model of the catalogue); without it
    the checkpoint's MTP head or the catalogue's drafter for this target. UsageError or
    ModelConfigError with the way out.
    """
    name = method_name(method)
    if name == "none":
        for what, value in (("k", k), ("the drafter", draft), ("the tree", tree_tokens)):
            if value:
                shown = value.name if isinstance(value, Drafter) else value
                raise UsageError(
                    f"{what} is {shown} but the method is 'none'; leave it out or name a --method"
                )
        return SpecSetup()
    if engine.methods and name not in engine.methods:
        raise UsageError(
            f"{engine.name} {engine.version} has no method {name!r}; it has "
            f"{', '.join(m for m in engine.methods if m != 'none')}"
        )
    drafter = _drafter(spec, name, draft)
    length = default_k(name, drafter) if k is None else k
    _check_k(engine, name, length, drafter)
    _check_tree(name, length, tree_topk, tree_tokens)
    at_once = parallel_drafting or (drafter is not None and drafter.kind == "p-eagle")
    if at_once and name not in ("draft-model", "eagle3"):
        raise UsageError(
            f"method {name!r} has no parallel drafting; P-EAGLE is eagle3 and PARD draft-model "
            "with parallel_drafting, or leave it out"
        )
    layers = 0
    if exit_layers and name != "early-exit":
        raise UsageError(
            f"exit layers are {exit_layers}, but method {name!r} runs no layers of the target; "
            "leave them out or use --method early-exit"
        )
    if draft_share != 1.0 and name not in LOOKUP:
        raise UsageError(
            f"draft share is {draft_share:g}, but method {name!r} drafts in every step; it is "
            "for ngram and suffix"
        )
    if name == "early-exit":
        layers = exit_layers or spec.n_layers // 2
        if not 1 <= layers < spec.n_layers:
            raise UsageError(
                f"exit layers are {layers}; {spec.name} has {spec.n_layers}, so from 1 to "
                f"{spec.n_layers - 1} can draft"
            )
    return SpecSetup(
        method=name,
        k=length,
        drafter=drafter,
        tree_topk=tree_topk,
        tree_tokens=tree_tokens if tree_topk > 1 else 0,
        draft_share=draft_share,
        exit_layers=layers,
        draft_tp=draft_tp,
        parallel_drafting=at_once,
    )


def default_method(spec: ModelSpec, engine: EngineProfile) -> str:
    """The method to look at when none is named: the checkpoint's MTP head, else a catalogued
    drafter the engine can run, else 'none'."""
    if spec.mtp is not None and "mtp" in engine.methods:
        return "mtp"
    for method in ("draft-model", "eagle3", "dflash", "eagle", "medusa"):
        if method not in engine.methods:
            continue
        kinds = _CATALOGUE_KIND.get(method, (method,))
        if any(default_drafter(spec, kind, assume=False) is not None for kind in kinds):
            return method
    return "none"


def default_k(method: str, drafter: Drafter | None) -> int:
    """Draft length when none is given: what the drafter was built for, else 3."""
    if drafter is not None and drafter.block_size:
        return max(1, drafter.block_size - (1 if method == "dflash" else 0))
    if drafter is not None and method == "medusa":
        return max(1, drafter.n_heads_medusa)
    if drafter is not None and method == "mtp" and drafter.n_predict > 1:
        return drafter.n_predict
    return 3


def _drafter(spec: ModelSpec, method: str, draft: str | Drafter | None) -> Drafter | None:
    if method in LOOKUP or method == "early-exit":
        if draft:
            name = draft if isinstance(draft, str) else draft.name
            raise UsageError(f"method {method!r} uses no draft network; leave out --draft {name}")
        return None
    if draft:
        found = draft if isinstance(draft, Drafter) else named_drafter(draft)
        if found.kind not in _KINDS[method]:
            raise UsageError(
                f"drafter {found.name} is of kind {found.kind!r}, but method {method!r} runs "
                f"{' or '.join(_KINDS[method])}; choose another --method or --draft"
            )
        _check_fit(found, spec)
        return with_target_head(found, spec)
    if method == "mtp":
        if spec.mtp is not None:
            return spec.mtp
        found_default = default_drafter(spec, "gemma-assistant")
        if found_default is not None:
            return found_default
        raise UsageError(
            f"{spec.name} ships no MTP head; use another --method "
            "(draft-model, eagle3, ngram) or a checkpoint that has one"
        )
    for kind in _CATALOGUE_KIND.get(method, (method,)):
        found_default = default_drafter(spec, kind)
        if found_default is not None:
            return found_default
    raise UsageError(
        f"no {method} drafter for {spec.name} is in the catalogue; name one with --draft "
        "(a catalogue name or a folder with its config.json)"
    )


def named_drafter(name: str) -> Drafter:
    """A drafter of the catalogue, or a whole model of it as a draft model."""
    if has_drafter(name) or not has_model(name):
        return find_drafter(name)
    return drafter_from_spec(find_model(name))


def _check_fit(drafter: Drafter, spec: ModelSpec) -> None:
    """A drafter proposes tokens of the target's vocabulary, and one that reads the target's
    hidden states, head or cache must have its widths."""
    if drafter.vocab != spec.vocab:
        raise UsageError(
            f"drafter {drafter.name} has a vocabulary of {drafter.vocab} tokens, {spec.name} of "
            f"{spec.vocab}; draft and target must share one tokenizer"
        )
    if drafter.kind == "model":
        return
    wide = drafter.fc_in % spec.hidden if drafter.fc_in else drafter.hidden != spec.hidden
    if wide or (not drafter.own_head and drafter.hidden != spec.hidden):
        raise UsageError(
            f"drafter {drafter.name} was made for a target of another width than {spec.name} "
            f"(hidden size {spec.hidden}); choose a drafter trained for this model"
        )


def _check_tree(method: str, k: int, topk: int, tokens: int) -> None:
    """A tree of depth k with topk branches, of which the best tokens - 1 drafts are verified."""
    if not 1 <= topk <= 64:
        raise UsageError(f"tree top-k is {topk}; it must be from 1 (a chain) to 64")
    if topk == 1:
        if tokens and tokens != k + 1:
            raise UsageError(
                f"a chain of {k} drafts verifies {k + 1} tokens, not {tokens}; leave out the tree "
                "or give a top-k above 1"
            )
        return
    if method not in ("eagle", "eagle3", "medusa", "mtp"):
        raise UsageError(f"method {method!r} drafts chains; leave out the tree top-k {topk}")
    # The first level has topk nodes, every further one topk branches of topk survivors.
    most = 1 + topk + (k - 1) * topk * topk
    if not k + 1 <= tokens <= most:
        raise UsageError(
            f"tree tokens are {tokens}; a tree of depth {k} and top-k {topk} verifies from "
            f"{k + 1} to {most} tokens, the root included"
        )


def _check_k(engine: EngineProfile, method: str, k: int, drafter: Drafter | None) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise UsageError(f"k is {k!r}; num_speculative_tokens must be a whole number 1 to {MAX_K}")
    if engine.max_k and k > engine.max_k:
        raise UsageError(f"k is {k}; {engine.name} {engine.version} allows at most {engine.max_k}")
    if drafter is None:
        return
    if method == "mtp" and engine.k_multiple_of_n_predict and drafter.n_predict > 1:
        n = drafter.n_predict
        if k > n and k % n:
            raise UsageError(
                f"k is {k}, but {engine.name} wants a multiple of the {n} MTP layers of "
                f"{drafter.name}; use {k // n * n} or {(k // n + 1) * n}"
            )
    if method in ("dflash", "dspark") and drafter.block_size and k > drafter.block_size:
        raise UsageError(
            f"k is {k}, but {drafter.name} drafts blocks of {drafter.block_size} tokens; "
            f"use at most {drafter.block_size}"
        )
    if method == "medusa" and drafter.n_heads_medusa and k > drafter.n_heads_medusa:
        raise UsageError(
            f"k is {k}, but {drafter.name} has {drafter.n_heads_medusa} heads; "
            f"use at most {drafter.n_heads_medusa}"
        )
