"""Early exit (layer skip): the first layers of the target and its head draft, in k passes of one
row per sequence; there is no other network and no further cache."""

from specsim.methods.base import DraftMethod
from specsim.methods.registry import register


@register
class EarlyExitMethod(DraftMethod):
    """The target's own first layers."""

    name = "early-exit"
    listed = 10
    spellings = ("layer-skip", "layerskip", "self-speculative")
    own_layers = True
