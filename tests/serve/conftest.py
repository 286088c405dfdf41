"""Server tests: one thread, a tiny random model, and a tokenizer of one character per token."""

import pytest

torch = pytest.importorskip("torch", reason="the decoder needs torch")
pytest.importorskip("starlette", reason="the server needs starlette")
pytest.importorskip("prometheus_client", reason="the server needs prometheus-client")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model folder: config, weights, tokenizer with a chat template."""
    from serve_helpers import write_model

    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(folder):
    from specsim.decoder.models import load_model

    return load_model(folder, dtype="fp32").model


@pytest.fixture(scope="session")
def tokenizer(folder):
    from specsim.decoder.tokenizer import Tokenizer

    return Tokenizer(folder)
