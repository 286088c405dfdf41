"""An OpenAI-compatible HTTP server around the decoder: what engines serve, measured like engines.

    settings        limits of a server
    errors          errors as OpenAI's clients expect them
    bodies, protocol    request bodies: their declared shapes, and what they ask for
    tokenizing      prompts to token ids in two worker threads, short ones apart from long ones
    text            text of a growing answer, cut at stop strings
    metrics         counters and histograms under vLLM's names
    engine_thread   the engine in a thread of its own; requests in, updates out
    replies         response bodies and stream chunks
    app             routes (starlette); streaming   server-sent events
    connections     how long a connection may wait, and which makes room for a new one
    listening       sockets, and the names under which they are answered
    server          uvicorn, signals, graceful shutdown; log_lines   vLLM's periodic log lines

Needs the extra `specsim-llm[decoder]`.
Importing this package imports nothing; import the module you need.
"""
