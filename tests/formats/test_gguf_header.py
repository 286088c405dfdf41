"""GGUF headers as models: counts, bytes, and every way a header can be broken."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thinned import examples

import gguf_maker
from specsim.errors import FormatError, ModelConfigError, SpecSimError
from specsim.formats.gguf_header import bits_per_weight, read_gguf_header, read_gguf_model
from specsim.formats.load_model import load_drafter, load_model
from specsim.model.counts import parameters, weight_bytes


def write(tmp_path, raw, name="model.gguf"):
    path = tmp_path / name
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("options", [
    {}, {"tied": True}, {"arch": "qwen2", "bias": True}, {"kind": 1, "head_kind": 1}, {"kind": 8},
])
def test_parameters_are_those_of_the_tensors(tmp_path, options):
    path = write(tmp_path, gguf_maker.llama(**options))
    spec, header = read_gguf_model(path), read_gguf_header(path)
    assert parameters(spec).total == sum(tensor.weights for tensor in header.tensors)
    assert spec.n_layers == 2 and spec.hidden == 256 and spec.vocab == 1000
    assert spec.max_position == 4096


def test_weights_have_the_bytes_of_their_type(tmp_path):
    path = write(tmp_path, gguf_maker.llama(layers=8, hidden=1024, ffn=4096))
    spec, header = read_gguf_model(path), read_gguf_header(path)
    assert bits_per_weight(header) == (pytest.approx(8 * 144 / 256), "Q4_K")
    assert spec.weights == "q4_k"
    held = sum(tensor.bytes for tensor in header.tensors)
    assert weight_bytes(spec).total == pytest.approx(held, rel=1e-3)  # norms: 32 for 16 bits
    assert "4.50 bits" in spec.notes[-1]


def test_a_packed_model_is_priced_between_its_bytes_and_16_bits(tmp_path):
    """One client waits for weights: time per token follows the bytes, not the name of the type."""
    from specsim.analytic.predict import predict
    from specsim.api.deployment import build_request
    from specsim.options.groups import DeploymentOptions as Options

    steps = []
    for kind in (12, 8, 1):  # Q4_K, Q8_0, F16
        path = write(tmp_path, gguf_maker.llama(layers=32, hidden=4096, ffn=11008, heads=32, kv=8,
                                                vocab=32000, kind=kind, head_kind=kind))
        request = build_request(Options(model=str(path), gpu="l4", method="none"))
        steps.append(predict(request.system, request.workload, [1]).points[0].step_s)
    assert steps[0] < 0.7 * steps[1] and steps[1] < 0.7 * steps[2]


def test_it_is_a_model_and_a_drafter_on_the_command_line(tmp_path):
    path = write(tmp_path, gguf_maker.llama())
    target = load_model(str(path))
    assert target.name == "model"
    drafter = load_drafter(str(path), target)
    assert drafter.kind == "model" and drafter.target == "model"
    bare = write(tmp_path, path.read_bytes(), "no-ending")
    assert load_model(str(bare)).n_layers == 2


GOOD = gguf_maker.llama()
META = {"general.architecture": "llama"}


@pytest.mark.parametrize(("raw", "words"), [
    (b"", "ends before it should"),
    (b"GGML" + GOOD[4:], "does not begin with GGUF"),
    (GOOD[:40], "cut off"),
    (GOOD[:-5], "cut off|ends before"),
    (b"GGUF" + struct.pack(">I", 3) + GOOD[8:], "version 50331648"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "damaged"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "damaged"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62), "text of"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_maker.text("a") + struct.pack("<I", 99),
     "unknown type 99"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_maker.text("a")
     + struct.pack("<IIQ", 9, 8, 1 << 40), "more than the file holds"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_maker.text("a")
     + struct.pack("<IIQ", 9, 4, 1 << 40), "ends before"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_maker.text("a") + struct.pack("<IIQ", 9, 9, 1),
     "array of type 9"),
    (gguf_maker.gguf({}, []), "no general.architecture"),
    (gguf_maker.gguf(META, []), "embedding_length is missing"),
    (gguf_maker.gguf(META | {"llama.embedding_length": "wide"}, []), "no whole number"),
    (gguf_maker.gguf({"general.architecture": "mamba9"}, []), "'mamba9' is not read"),
    (gguf_maker.gguf(META, [("a", (), 0)]), "0 dimensions"),
    (gguf_maker.gguf(META, [("a", (1 << 50,), 0)]), "impossible sizes"),
    (gguf_maker.llama(extra={"llama.attention.head_count_kv": [2, 4]}), "differ in their heads"),
    (gguf_maker.llama(heads=8, kv=3), "."),
])
def test_broken_headers_say_what_is_wrong(tmp_path, raw, words):
    with pytest.raises((FormatError, ModelConfigError), match=words) as caught:
        read_gguf_model(write(tmp_path, raw))
    assert "\n" not in str(caught.value) and "model" in str(caught.value)


@settings(max_examples=examples(150), deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_but_our_errors_comes_out(tmp_path, data):
    raw = bytearray(GOOD if data.draw(st.booleans()) else gguf_maker.llama(vocab=3, layers=1))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(raw) - 1, 900)))
        raw[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(raw), len(raw) // 2, 100, 24]))
    try:
        read_gguf_model(write(tmp_path, bytes(raw[:cut])))
    except SpecSimError as error:
        assert "\n" not in str(error)
