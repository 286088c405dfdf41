"""Refusal of what a config says about sizes and no reader has read.

Publishers add parts to an architecture by adding fields. A reader that does not know a field would
price the model without the part, so a field that sounds like a size, a count or a part, and that
nobody asked for while the file was read, is an error that names it.
"""

import re

from specsim.data import data_table
from specsim.errors import ModelConfigError, shown
from specsim.formats.hf_object import ConfigObject

# Words of a field's name that speak of geometry.
_SIZES = re.compile(
    r"(?:^|_)(?:dims?|rank|heads?|layers?|experts?|topk|size|width|window|blocks?|stride|kernel|"
    r"groups?|ratios?|freq|interval|patterns?|types|mult|conv|indexe?r?|sparse|compress|shared?|"
    r"kv|gated?|moe|mlp|ffn|attn|attention|norm|sinks?|bias|mtp|nextn|lora|latent|embeddings?|"
    r"streams|engram|hc|cla|residual|mode|config|num|n)(?:_|$)"
)
# Names that speak of tokens, positions, training and kernels, which cost nothing in serving.
_HARMLESS = re.compile(
    r"^(?:rope|rotary|no_rope|vision|image|video|audio|num_beam|num_return|num_labels|time_step)|"
    r"_(?:token_id|token_ids|dropout|positions?)$|max_position_embeddings|flash"
)


def refuse_unread(f: ConfigObject, *, drafter: bool = False) -> None:
    """Raise ModelConfigError for the first field of a size that was not read from `f`; call it
    when the reader is done."""
    known = data_table("catalog", "architectures.toml")
    inert = {*known["inert"], *(known["inert_of_drafters"] if drafter else ())}
    for name, value in f.unasked().items():
        if name.startswith("_") or name in inert:
            continue
        if not _SIZES.search(name) or _HARMLESS.search(name) or _changes_nothing(f, name, value):
            continue
        raise ModelConfigError(
            f"{f.where}: {name} = {shown(value)}: a field of this name may change sizes or reads, "
            f"and this architecture's reader does not know it; delete it from a copy of the file "
            "if it changes nothing"
        )


def _changes_nothing(f: ConfigObject, name: str, value: object) -> bool:
    """Whether the value is the one that the architecture has anyway."""
    if isinstance(value, str | float):
        return True  # a name or a factor
    if name in ("v_head_dim", "attention_head_dim"):
        return value == f.raw.get("head_dim")
    if name == "sliding_window":
        listed = f.raw.get("layer_types")
        full = isinstance(listed, list) and "sliding_attention" not in listed
        return full or f.raw.get("use_sliding_window") is False or not _shorter(f, value)
    if name == "layer_types":
        return isinstance(value, list) and set(map(str, value)) == {"full_attention"}
    return False


def _shorter(f: ConfigObject, window: object) -> bool:
    longest = f.raw.get("max_position_embeddings")
    return not (isinstance(window, int) and isinstance(longest, int) and window >= longest)
