"""Part B: the matrix products of a layer, as the decoder calls them.

One job runs the products of all layers of a model in the order of a step, for one number of rows,
and times each: every matrix is then as cold as it is in a step, where the other layers' weights
have passed through the caches since its last use. (On a GPU each matrix is timed over the layers in
a graph of its own; the matrices are larger than the cache there.)

matrix: 'qkv', 'o', 'gate_up' (with the gate's activation), 'down', 'lm_head' (fp32 logits not
counted). n and k are the width of the output and of the input.
"""

from collections.abc import Callable
from functools import partial

from specsim.calibrate.records import Measurement
from specsim.decoder.config import ModelConfig
from specsim.decoder.layers import Linear, linear_factory
from specsim.decoder.transformer import Transformer
from specsim.measure.models import MeasuredModel
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint, Session, measured
from specsim.units import DTYPE_BYTES


def matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """(n, k) of each product by name; lm_head last."""
    c = config
    return {
        "qkv": (c.qkv_width, c.hidden_size),
        "o": (c.hidden_size, c.num_heads * c.head_dim),
        "gate_up": (2 * c.intermediate_size, c.hidden_size),
        "down": (c.hidden_size, c.intermediate_size),
        "lm_head": (c.vocab_size, c.hidden_size),
    }


def jobs(model: MeasuredModel, rows: tuple[int, ...], dtype: str) -> list[MeasureJob]:
    """One job per number of rows."""
    shapes = matrices(model.config)
    layers = model.config.num_layers
    out = []
    for m in rows:
        points = tuple(
            MeasurePoint("gemm", {"model": model.name, "matrix": name, "m": m, "n": n, "k": k,
                           "dtype": dtype})
            for name, (n, k) in shapes.items()
        )
        sizes = [n * k * (1 if name == "lm_head" else layers) for name, (n, k) in shapes.items()]
        weights = float(sum(sizes))
        work = JobCost(bytes=weights * DTYPE_BYTES[dtype], flops=2 * weights * m,
                    calls=4 * layers + 1)
        out.append(MeasureJob("B", points, work, (model.name,), partial(_run, points)))
    return out


def _run(points: tuple[MeasurePoint, ...], session: Session) -> list[Measurement]:
    model = session.model_of(points[0])
    inputs = {str(p.shape["matrix"]): session.normal(int(p.shape["m"]), int(p.shape["k"]))
              for p in points}
    calls: list[tuple[str, Callable[[], object]]] = []
    for layer in model.layers:
        assert layer.gate_up is not None and layer.down is not None
        for matrix, product in (("qkv", layer.qkv), ("o", layer.o), ("gate_up", layer.gate_up),
                                ("down", layer.down)):
            calls.append((matrix, partial(product, inputs[matrix])))
    calls.append(("lm_head", partial(_head(model), inputs["lm_head"])))
    timed = session.timer.sweep(calls, session.limits)
    return [measured(point, timed[str(point.shape["matrix"])]) for point in points]


def _head(model: Transformer) -> Linear:
    """The head's product alone; its weights in their own layout, as the model holds them."""
    linear: Linear = linear_factory(model.linear, model.device, model.dtype)(model.head_weight)
    return linear
