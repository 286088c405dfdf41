"""specsim: what speculative decoding will do for an LLM, on a GPU, under a load."""

__version__ = "0.1.0"
