"""A client that drives an OpenAI-compatible server and records what every request saw.

    prompts     what is sent: files, built-in texts, random token ids
    sse         the event stream of a response, piece by piece, with limits
    stream      what the events of one response mean: chunks, tokens, usage, acceptance
    http        the connection (aiohttp, the extra `client`)
    load        when requests are sent: fixed times, or a limit of open ones
    metrics     the server's /metrics before, during and after a run
    result      records of a run, and the result file of `vllm bench serve`

Send times come from the caller: the layers above know how `vllm bench serve` draws them.
"""
