"""L7: decisions made from predictions: what to run, how long to draft, how many GPUs."""
