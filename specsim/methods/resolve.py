"""From what a user asks for ('mtp, k 3') to a SpecSetup, with the rules of model and engine.

Every rule that refuses says which it is: a method the engine's version does not have, an MTP head
the checkpoint lacks, a draft length that is not a multiple of the physical MTP layers (vLLM), a
block drafter asked for more tokens than its block, a drafter with another vocabulary.
"""

from dataclasses import replace
from typing import TypedDict, Unpack

from specsim.errors import UsageError
from specsim.methods.base import METHODS, DraftMethod, EngineLimits, SpecSetup, check_k
from specsim.methods.draft_model import WHOLE_MODEL
from specsim.methods.registry import method_name
from specsim.model.catalogue import (
    catalogued_drafter,
    find_drafter,
    find_model,
    has_drafter,
    has_model,
    served_name,
    with_target_head,
)
from specsim.model.drafter_counts import drafter_from_spec
from specsim.model.spec import Drafter, ModelSpec

MAX_BRANCHES = 64


class DraftingShape(TypedDict, total=False):
    """How a method drafts, beyond its length; see `SpecSetup` for the meaning of each."""

    tree_topk: int
    tree_tokens: int
    exit_layers: int
    draft_tp: int
    draft_share: float
    parallel_drafting: bool


def resolve_setup(
    spec: ModelSpec,
    engine: EngineLimits,
    method: str,
    k: int | None = None,
    *,
    draft: str | Drafter | None = None,
    **shape: Unpack[DraftingShape],
) -> SpecSetup:
    """A checked SpecSetup. k None takes the natural length of the method and its drafter.

    draft: a drafter, or its name (for draft-model also any model of the catalogue); without it
    the checkpoint's MTP head or the catalogue's drafter for this target. UsageError or
    ModelConfigError with the way out.
    """
    wish = SpecSetup(method_name(method), **shape)
    asked, name = wish.drafting, wish.method
    if not wish.speculates:
        for what, value in (("k", k), ("the drafter", draft), ("the tree", wish.tree_tokens)):
            if value:
                shown = value.name if isinstance(value, Drafter) else value
                raise UsageError(
                    f"{what} is {shown} but the method is 'none'; leave it out or name a --method"
                )
        return SpecSetup()
    if engine.methods and name not in engine.methods:
        raise UsageError(
            f"{engine.name} {engine.version} has no method {name!r}; it has "
            f"{', '.join(m for m in engine.methods if SpecSetup(m).speculates)} (--method), other "
            "engines and versions others (--engine sglang, specsim, vllm==0.25.1)"
        )
    drafter = _drafter(spec, asked, draft)
    length = asked.default_k(drafter) if k is None else k
    check_k(engine, asked, length, drafter)
    _check_tree(asked, length, wish.tree_topk, wish.tree_tokens)
    at_once = wish.parallel_drafting or asked.drafts_at_once(drafter)
    if at_once and not asked.parallel:
        raise UsageError(
            f"method {name!r} has no parallel drafting; P-EAGLE is eagle3 and PARD draft-model "
            "with parallel_drafting, or leave it out"
        )
    layers = _exit_layers(spec, asked, wish.exit_layers)
    if wish.draft_share != 1.0 and not asked.lookup:
        raise UsageError(
            f"draft share is {wish.draft_share:g}, but method {name!r} drafts in every step; it is "
            f"for {' and '.join(m.name for m in METHODS.values() if m.lookup)}"
        )
    return replace(
        wish,
        k=length,
        drafter=drafter,
        tree_tokens=wish.tree_tokens if wish.tree_topk > 1 else 0,
        exit_layers=layers,
        parallel_drafting=at_once,
    )


def default_method(spec: ModelSpec, engine: EngineLimits, *, assume: bool = False) -> str:
    """The method to look at when none is named: the checkpoint's MTP head, else a catalogued
    drafter the engine can run, else (where `assume` is set) one of a usual shape, else 'none'."""
    run = [m for m in METHODS.values() if m.name in engine.methods]
    ranked = sorted((m for m in run if m.default_rank), key=lambda m: m.default_rank)
    for method in [m for m in run if m.shipped(spec) is not None] + [
        m for m in ranked if _catalogued(spec, m) is not None
    ] + [m for m in ranked if assume and m.assumed_drafter(spec) is not None]:
        return method.name
    return SpecSetup().method


def default_drafter(spec: ModelSpec, method: str, *, assume: bool = True) -> Drafter | None:
    """The drafter to take for `spec` when the user names only the method, or None.

    The model's own head ('mtp'; Gemma-4: its published assistant), or the catalogue's first
    drafter trained for this model or its base. Where there is none and `assume` is set, some
    methods have one of the usual shape, whose notes say so.
    """
    asked = METHODS[method]
    found = asked.shipped(spec) or _catalogued(spec, asked)
    return asked.assumed_drafter(spec) if found is None and assume else found


def named_drafter(name: str) -> Drafter:
    """A drafter of the catalogue, or a whole model of it as a draft model. A repository of another
    checkpoint, which shares the shapes of one listed, keeps its name: it drafts otherwise."""
    if has_drafter(name) or not has_model(name):
        found = find_drafter(name)
    else:
        found = drafter_from_spec(find_model(name))
    other = "/" in name and served_name(name) != served_name(found.name)
    return replace(found, name=name) if other else found


def _catalogued(spec: ModelSpec, method: DraftMethod) -> Drafter | None:
    found = (catalogued_drafter(spec, kind) for kind in method.catalogue_kinds)
    return next((drafter for drafter in found if drafter is not None), None)


def _drafter(spec: ModelSpec, method: DraftMethod, draft: str | Drafter | None) -> Drafter | None:
    if not method.drafter_kinds:
        if draft:
            name = draft if isinstance(draft, str) else draft.name
            raise UsageError(
                f"method {method.name!r} uses no draft network; leave out --draft {name}"
            )
        return None
    if draft:
        given = draft if isinstance(draft, Drafter) else named_drafter(draft)
        if given.kind not in method.drafter_kinds:
            raise UsageError(
                f"drafter {given.name} is of kind {given.kind!r}, but method {method.name!r} runs "
                f"{' or '.join(method.drafter_kinds)}; choose another --method or --draft"
            )
        _check_fit(given, spec)
        return with_target_head(given, spec)
    found = default_drafter(spec, method.name)
    if found is None:
        raise UsageError(method.missing_drafter(spec))
    return found


def _check_fit(drafter: Drafter, spec: ModelSpec) -> None:
    """A drafter proposes tokens of the target's vocabulary, and one that reads the target's
    hidden states, head or cache must have its widths."""
    if drafter.vocab != spec.vocab:
        raise UsageError(
            f"drafter {drafter.name} has a vocabulary of {drafter.vocab} tokens, {spec.name} of "
            f"{spec.vocab}; engines refuse drafts of another vocabulary, padding included: name "
            f"one of {spec.vocab} tokens with --draft"
        )
    if drafter.kind == WHOLE_MODEL:
        return
    wide = drafter.fc_in % spec.hidden if drafter.fc_in else drafter.hidden != spec.hidden
    if wide or (not drafter.own_head and drafter.hidden != spec.hidden):
        raise UsageError(
            f"drafter {drafter.name} was made for a target of another width than {spec.name} "
            f"(hidden size {spec.hidden}); choose a drafter trained for this model"
        )


def _check_tree(method: DraftMethod, k: int, topk: int, tokens: int) -> None:
    """A tree of depth k with topk branches, of which the best tokens - 1 drafts are verified."""
    if not 1 <= topk <= MAX_BRANCHES:
        raise UsageError(f"tree top-k is {topk}; it must be from 1 (a chain) to {MAX_BRANCHES}")
    if topk == 1:
        if tokens and tokens != k + 1:
            raise UsageError(
                f"a chain of {k} drafts verifies {k + 1} tokens, not {tokens}; leave out the tree "
                "or give a top-k above 1"
            )
        return
    if not method.trees:
        raise UsageError(f"method {method.name!r} drafts chains; leave out --tree {topk},{tokens}")
    # The first level has topk nodes, every further one topk branches of topk survivors.
    most = 1 + topk + (k - 1) * topk * topk
    if not k + 1 <= tokens <= most:
        raise UsageError(
            f"tree tokens are {tokens}; a tree of depth {k} and top-k {topk} verifies from "
            f"{k + 1} to {most} tokens, the root included"
        )


def _exit_layers(spec: ModelSpec, method: DraftMethod, exit_layers: int) -> int:
    """Layers of the target that draft: what was asked for, else half; 0 for other methods."""
    if not method.own_layers:
        if exit_layers:
            raise UsageError(
                f"exit layers are {exit_layers}, but method {method.name!r} runs no layers of the "
                "target; leave them out or use --method early-exit"
            )
        return 0
    layers = exit_layers or spec.n_layers // 2
    if not 1 <= layers < spec.n_layers:
        raise UsageError(
            f"exit layers are {layers}; {spec.name} has {spec.n_layers}, so from 1 to "
            f"{spec.n_layers - 1} can draft"
        )
    return layers
