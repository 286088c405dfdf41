"""Decoder tests: one thread (OpenMP stalls on shared cores), tiny models with random weights."""

import pytest

torch = pytest.importorskip("torch", reason="the decoder needs torch")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny():
    """Models by family name, and 'draft': a smaller one with the same vocabulary."""
    from decoder_helpers import CONFIGS, DRAFT, make_model

    models = {name: make_model(config) for name, config in CONFIGS.items()}
    models["draft"] = make_model(DRAFT, seed=5)
    return models
