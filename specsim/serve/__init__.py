"""An OpenAI-compatible HTTP server around the decoder: what engines serve, measured like engines.

    settings        limits of a server
    errors          errors as OpenAI's clients expect them
    bodies, protocol    request bodies: their declared shapes, and what they ask for
    metrics         counters and histograms under vLLM's names
    engine_thread   the engine in a thread of its own; requests in, updates and their text out
    replies         response bodies and stream chunks
    app             routes (starlette), tokenising, vLLM's log lines; streaming   server-sent events
    connections     how long a connection may wait, and which makes room for a new one
    listening       sockets, and the names under which they are answered
    server          uvicorn, signals, graceful shutdown

Needs the extra `specsim-llm[decoder]`.
Importing this package imports nothing; import the module you need.
"""
