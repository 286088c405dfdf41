"""Plain decoding: no drafts, one token per sequence and step."""

from specsim.methods.base import DraftMethod
from specsim.methods.registry import register


@register
class PlainDecoding(DraftMethod):
    """No speculation."""

    name = "none"
    listed = 0
    spellings = ("off", "no")
    speculates = False
    free_length = False
