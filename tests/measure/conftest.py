"""Measuring tests: one thread, a tiny model, and a grid of seconds."""

import pytest

torch = pytest.importorskip("torch", reason="measuring needs torch")
torch.set_num_threads(1)
