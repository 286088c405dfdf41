"""Drafting methods: everything that is particular to one of them, in one module each.

A method is an object (`base.DraftMethod`): how people and servers spell it, what it runs in a step,
which draft lengths it allows, which networks draft for it. Whoever needs to know asks the object
(`registry.find_method`, or `SpecSetup.drafting`); no other part of specsim compares names.

    base        the contract, and SpecSetup: a method with its draft length and drafter
    registry    all methods by name; `register` adds one
    resolve     from what a user asks for to a checked SpecSetup
    plain, mtp, draft_model, eagle, medusa, lookup, block, early_exit
                the methods themselves, those of one family in one module

Importing any part registers the methods that ship with specsim.
"""

from specsim.methods import registry as registry  # fills the table of methods
