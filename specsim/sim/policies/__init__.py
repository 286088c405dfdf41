"""Policies of speculation: how many tokens to draft in each step, decided while the engine runs.

`protocol` is what a policy sees and says, `choice` how one is named on a command line. Policies
that are tables (`static`, `table`, `off-above`) and SGLang's (`adaptive`) are data of the step loop
and run as fast as a fixed length; the others are asked at every step (`deciding`).
"""
