"""The Python side of specsim: what `import specsim` offers, and the checked requests behind it and
behind the command line.

The functions are in `specsim.api.functions`; `specsim` itself loads them at first use.
"""
