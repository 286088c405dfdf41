"""L1: what a model is (shapes, dtypes), its exact counts, and the catalogue."""
