"""The Python side of specsim: what `import specsim` offers, and the checked requests behind it and
behind the command line.

Each function has a module of its own; `specsim` itself loads it at first use.
"""
