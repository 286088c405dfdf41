"""A profile from the text of a file."""

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.schema import inherit_name, profile_from_document
from specsim.hardware.store import load_profile
from specsim.hardware.toml_file import parse_document


def load_profile_text(text: str, name: str, origin: str = "profile") -> HardwareProfile:
    doc = parse_document(text, origin)
    parent = inherit_name(doc, origin)
    inherited = None if parent is None else load_profile(parent)
    return profile_from_document(doc, name, origin, inherited)
