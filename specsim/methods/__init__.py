"""Drafting methods: everything that is particular to one of them, in a class of its own.

A method is an object (`base.DraftMethod`): how people, servers and configs spell it, what it runs
in a step, which draft lengths it allows, which networks draft for it. Whoever needs to know asks
the object (`base.find_method`, or `SpecSetup.drafting`); no other part of specsim compares names.

    base        the contract, and SpecSetup: a method with its draft length and drafter
    registry    all methods by name; `register` adds a class
    resolve     from what a user asks for to a checked SpecSetup

Every other module holds the methods of one family, registered by importing it, which this package
does for all that lie in it. So a new method is a new module here (or anywhere else, imported
before it is asked for), its name in the files of the engines that run it, and, where its network
has a config format of its own, a reader in `formats/hf_drafters`.
"""

from importlib import import_module
from pkgutil import iter_modules

_SHARED = {"base", "registry", "resolve"}

for _found in iter_modules(__path__):
    if _found.name not in _SHARED:
        import_module(f"{__name__}.{_found.name}")
