"""A client that drives an OpenAI-compatible server and records what every request saw.

Send times come from the caller: the layers above know how `vllm bench serve` draws them.
"""
