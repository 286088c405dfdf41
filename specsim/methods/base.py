"""What a drafting method is: `DraftMethod`, and `SpecSetup`, a method as one deployment runs it.

A speculative step verifies k + 1 tokens per sequence with the target. What runs besides, to draft
the k tokens of the next step, is the method's: a number of passes over a number of rows through a
draft network, or a lookup on the host. No acceptance here. Sources: the code of vLLM 0.25.1 and
0.33.0 and of SGLang 0.5.23.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from specsim.errors import UsageError
from specsim.model.spec import Drafter, ModelSpec

MAX_K = 64
DEFAULT_K = 3
ServerNames = Mapping[str, tuple[str, ...]]  # by engine
METHODS: dict[str, "DraftMethod"] = {}  # by name, in the order in which they are listed


def assumed_network(spec: ModelSpec, label: str, kind: str, note: str, **parts: Any) -> Drafter:
    """A network of the usual shape for a target for which nobody published one."""
    return Drafter(
        name=f"{label}-{spec.name} (assumed)", kind=kind, hidden=spec.hidden, vocab=spec.vocab,
        own_embed=False, target=spec.name, source="assumed", notes=(note,),
        **{"draft_vocab": spec.vocab, **parts},
    )


class EngineLimits(Protocol):
    """What a method needs to know of an engine (`latency.engine.EngineProfile` is one).

    methods: names of those it runs, empty: any. max_k: longest draft, 0: no limit of its own.
    k_multiple_of_n_predict: an MTP draft longer than the checkpoint's heads is a multiple of them.
    draft_model_first_rows: rows per sequence of a draft model's first pass, 0: as vLLM.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def methods(self) -> tuple[str, ...]: ...
    @property
    def max_k(self) -> int: ...
    @property
    def k_multiple_of_n_predict(self) -> bool: ...
    @property
    def draft_model_first_rows(self) -> int: ...


class DraftMethod:
    """One way to draft. A subclass sets what differs from this: a network that drafts k tokens in
    k passes and keeps a cache of its own.

    name: how specsim writes it. spellings: other names that people and engines use for it, in
        small letters with dashes (underscores are the same).
    server_names: engine name -> what its command line calls the method; the first is written,
        all are read.
    checkpoint_words: parts of a draft checkpoint's name from which vLLM infers the method.
    config_names: how the config of a drafter says what it is: a word of `architectures` or
        `model_type`, in small letters -> kind of network. speculators: the same for the word of
        `speculators_model_type`.
    config_fields: a field that only such configs have -> kind of network.
    in_checkpoint: the drafter ships inside the target's own checkpoint.
    drafter_kinds: kinds of network (`Drafter.kind`) that the method runs; empty: no network.
    catalogue_kinds: those that are taken from the catalogue when no drafter is named.
    measured_names: what the acceptance catalogue calls it besides its name.
    own_layers: the first layers of the target draft (early exit).
    lookup: drafts are looked up in the text, on the host, and exist in a share of the steps only.
    scans_context: that lookup reads the whole context again in each step (vLLM's n-gram).
    one_pass: all drafts come from one pass, whatever the drafter.
    block: that pass drafts a block, attending to keys and values that the drafter makes of every
        verified row (DFlash, DSpark).
    free_length: any draft length can be asked for, so that lengths can be compared.
    trees: can draft several branches. parallel: has networks that draft all positions in one pass.
    reads_last_block: the drafter needs hidden states of the last cached block, so a prefix hit
        leaves that block out (vLLM).
    adapts: SGLang can shorten its drafts by batch size (--speculative-adaptive).
    one_number: servers take one number for it, the tokens of a verify step, instead of passes,
        branches and tokens (SGLang).
    joins_once: only the first pass of a step joins the target's hidden states; later ones go on
        from the drafter's own.
    listed: place in lists of methods; new ones come last.
    speculates: false for plain decoding alone.
    new_runner: vLLM 0.25 runs it on its newer model runner whatever the model.
    default_rank: which method is looked at when none is named and the checkpoint holds no drafter:
        the lowest that the catalogue has one for; 0: never.
    """

    name: str
    spellings: tuple[str, ...] = ()
    server_names: ClassVar[ServerNames] = {}
    checkpoint_words: tuple[str, ...] = ()
    config_names: ClassVar[Mapping[str, str]] = {}
    speculators: ClassVar[Mapping[str, str]] = {}
    config_fields: ClassVar[Mapping[str, str]] = {}
    in_checkpoint: bool = False
    drafter_kinds: tuple[str, ...] = ()
    catalogue_kinds: tuple[str, ...] = ()
    measured_names: tuple[str, ...] = ()
    own_layers: bool = False
    lookup: bool = False
    scans_context: bool = False
    one_pass: bool = False
    block: bool = False
    free_length: bool = True
    trees: bool = False
    parallel: bool = False
    reads_last_block: bool = False
    adapts: bool = False
    one_number: bool = False
    joins_once: bool = False
    new_runner: bool = False
    listed: int = 100
    speculates: bool = True
    default_rank: int = 0

    def spelt(self, text: str) -> bool:
        """Whether `text`, in small letters, is a way to write the name."""
        word = text.replace("_", "-")
        return word == self.name or word in self.spellings

    # --- what a step runs -----------------------------------------------------------------------

    @property
    def runs_passes(self) -> bool:
        """Whether anything drafts on the device: a network, or layers of the target."""
        return bool(self.drafter_kinds) or self.own_layers

    @property
    def servable(self) -> bool:
        """Whether serving engines offer it: layers of the target draft in research code only."""
        return self.speculates and not self.own_layers

    def drafts_at_once(self, drafter: Drafter | None) -> bool:
        """Whether this drafter makes all k drafts in one pass without being told to."""
        return False

    def passes(self, k: int, at_once: bool) -> tuple[int, int]:
        """(first passes over wide rows, further ones over one row per branch). at_once: the
        drafter makes all k drafts in one pass (P-EAGLE, PARD)."""
        if k < 1 or not self.runs_passes:
            return 0, 0
        return (1, 0) if at_once or self.one_pass else (1, k - 1)

    def first_rows(self, setup: "SpecSetup", engine: EngineLimits) -> int:
        """Rows per sequence of the first pass."""
        if not setup.takes_batch:
            return 1
        return setup.k + 1 + (setup.k - 1 if setup.parallel_drafting else 0)

    def lookahead(self, k: int) -> int:
        """Cache slots a sequence holds for the drafts of the step after (vLLM's lookahead)."""
        return k if self.runs_passes else 0

    def takes_batch(self, drafter: Drafter | None) -> bool:
        """Whether the first pass runs over every token of the target's batch though the drafter
        fills no cache of its own."""
        return False

    def reserved_tokens(self, k: int, at_once: bool) -> int:
        """Tokens of every step that vLLM before 0.33 sets aside per running sequence."""
        return k - 1 if at_once else 0

    # --- draft lengths --------------------------------------------------------------------------

    def default_k(self, drafter: Drafter | None) -> int:
        """Draft length when none is given: what the drafter was built for, else 3."""
        return DEFAULT_K

    def k_fault(self, engine: EngineLimits, k: int, drafter: Drafter | None) -> str:
        """Why the method cannot draft k tokens with this drafter, and what to use; '' if it can."""
        return ""

    # --- networks -------------------------------------------------------------------------------

    def shipped(self, spec: ModelSpec) -> Drafter | None:
        """The drafter inside the target's own checkpoint."""
        head = spec.mtp
        return head if head is not None and head.kind in self.drafter_kinds else None

    def assumed_drafter(self, spec: ModelSpec) -> Drafter | None:
        """A drafter of the usual shape for a target that nobody published one for."""
        return None

    def missing_drafter(self, spec: ModelSpec) -> str:
        """What to say when there is no drafter for `spec`."""
        return (
            f"no {self.name} drafter for {spec.name} is in the catalogue; name one with --draft "
            "(a catalogue name or a folder with its config.json)"
        )

    # --- acceptance -----------------------------------------------------------------------------

    def measured_as(self, method: str, draft: str) -> bool:
        """Whether an acceptance catalogued under that method and draft holds for this one."""
        return method == self.name or method in self.measured_names

    def acceptance_spread(self, draft_probability: float) -> str:
        """The fitted set (`catalog/acceptance_spread.csv`) of how acceptance varies between
        requests and steps; model drafters take the one of chat. draft_probability: share of steps
        with a draft, 1 where the acceptance is given over all steps."""
        return "eagle-sharegpt"

    # --- servers --------------------------------------------------------------------------------

    def server_name(self, engine: str, drafter: Drafter | None) -> str:
        """What the engine's command line calls the method with this drafter. UsageError where it
        has no name for it."""
        names = self.server_names.get(engine)
        if not names:
            raise UsageError(f"no name of the method {self.name} is known for {engine}'s command")
        return names[0]

    def server_notes(self, engine: str, k: int, drafter: Drafter | None) -> tuple[str, ...]:
        """What a server says or does that its user should know."""
        return ()


def find_method(name: str) -> DraftMethod:
    """The method of a canonical name. KeyError for others: see `registry.method_name`."""
    return METHODS[name]


def method_of(drafter: Drafter) -> DraftMethod:
    """The method that runs a drafter, when a user names the drafter alone."""
    return next(m for m in METHODS.values() if drafter.kind in m.drafter_kinds)


@dataclass(frozen=True, slots=True)
class SpecSetup:
    """A method as a deployment runs it. method: its name; k: num_speculative_tokens (draft depth
    for a tree).

    drafter: the network that drafts (None for lookups and none).
    tree_topk: branches per drafted position (1 = chain); tree_tokens: tokens verified per
        sequence in a tree, root included (chain: k + 1).
    draft_share: share of steps in which a draft exists (n-gram and suffix find one in some).
    exit_layers: layers of the target that an early-exit draft runs.
    draft_tp: GPUs the drafter is split over (0: as the target).
    parallel_drafting: all k drafts come from one pass (P-EAGLE, PARD).
    drafting: the method itself, by its name.
    """

    method: str = "none"
    k: int = 0
    drafter: Drafter | None = None
    tree_topk: int = 1
    tree_tokens: int = 0
    draft_share: float = 1.0
    exit_layers: int = 0
    draft_tp: int = 0
    parallel_drafting: bool = False
    drafting: DraftMethod = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafting", find_method(self.method))

    @property
    def speculates(self) -> bool:
        """Whether there is a method at all (in a single step its k may still be 0)."""
        return self.drafting.speculates

    @property
    def verify_tokens(self) -> int:
        """Tokens that one sequence brings into a verify step."""
        if self.k == 0 or not self.speculates:
            return 1
        return self.tree_tokens or self.k + 1

    @property
    def lookahead_tokens(self) -> int:
        """Cache slots a sequence holds for the drafts of the step after (vLLM's lookahead)."""
        return self.drafting.lookahead(self.k)

    @property
    def fills_cache(self) -> bool:
        """Whether the drafter keeps a cache of its own, which prompts must pass through."""
        if self.drafter is None:
            return False
        return any(getattr(g.mixer, "owns_kv", g.mixer is not None) for g in self.drafter.layers)

    @property
    def takes_batch(self) -> bool:
        """Whether the first pass runs over every token of the target's batch."""
        return self.fills_cache or self.drafting.takes_batch(self.drafter)

    @property
    def drops_last_block(self) -> bool:
        """Whether a prefix hit leaves out its last block, whose hidden states the drafter reads."""
        borrows = self.takes_batch and not self.fills_cache  # vLLM counts Gemma's assistant as MTP
        return self.drafting.reads_last_block or borrows

    @property
    def reserved_tokens(self) -> int:
        """Tokens of every step that vLLM before 0.33 sets aside per running sequence."""
        return self.drafting.reserved_tokens(self.k, self.parallel_drafting)

    def passes(self) -> tuple[int, int]:
        """(first passes over wide rows, further passes over one row per branch)."""
        return self.drafting.passes(self.k, self.parallel_drafting)

    def first_rows(self, engine: EngineLimits) -> int:
        """Rows per sequence of the first pass."""
        return self.drafting.first_rows(self, engine)

    def draft_lengths(self, engine: EngineLimits, longest: int) -> list[int]:
        """Draft lengths up to `longest` that method, drafter and engine allow, and the setup's
        own. A tree has only its own."""
        if not self.speculates or not self.k:
            return []
        if self.tree_topk > 1:
            return [self.k]
        allowed = {
            k for k in range(1, min(longest, MAX_K) + 1)
            if not k_fault(engine, self.drafting, k, self.drafter)
        }
        return sorted(allowed | {self.k})


def k_fault(engine: EngineLimits, method: DraftMethod, k: int, drafter: Drafter | None) -> str:
    """Why k is not a draft length that engine, method and drafter allow; '' where it is."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        return f"k is {k!r}; num_speculative_tokens must be a whole number 1 to {MAX_K}"
    if engine.max_k and k > engine.max_k:
        return f"k is {k}; {engine.name} {engine.version} allows at most {engine.max_k}"
    return method.k_fault(engine, k, drafter)


def check_k(engine: EngineLimits, method: DraftMethod, k: int, drafter: Drafter | None) -> None:
    """UsageError where `k_fault` has something to say."""
    fault = k_fault(engine, method, k, drafter)
    if fault:
        raise UsageError(fault)
