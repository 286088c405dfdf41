"""What the prompts of a benchmark have in common, which a prefix cache may find.

As the data sets of load generators: prompts that begin with one of a few prefixes (vLLM's
`prefix_repetition`, SGLang's `generated-shared-prefix`), and a pool of prompts sent over and over.
"""

from dataclasses import dataclass

from specsim.errors import UsageError


@dataclass(frozen=True, slots=True)
class PromptPool:
    """shared_tokens: every prompt begins with so many tokens of one of `groups` prefixes.
    prompts: so many different prompts are sent in turn, again and again; 0: none twice."""

    shared_tokens: int = 0
    groups: int = 1
    prompts: int = 0

    def __post_init__(self) -> None:
        if self.prompts and self.groups > self.prompts:
            raise UsageError(
                f"{self.groups} prefixes cannot begin {self.prompts} prompts; ask for at most one "
                "per prompt"
            )

    def spans(self, number: int, prompt_tokens: int) -> tuple[tuple[int, int], ...]:
        """Content of the prompt of the request with this number, as `Request.spans`."""
        which = number % self.prompts if self.prompts else number
        shared = min(self.shared_tokens, prompt_tokens)
        pieces = [(which % self.groups, shared)] if shared else []
        if self.prompts and prompt_tokens > shared:
            pieces.append((self.groups + which, prompt_tokens - shared))
        return tuple(pieces)
