"""L4: acceptance, expected tokens, and the speculative methods."""
