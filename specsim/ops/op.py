"""OpCost: one kind of kernel call of a step, in FLOP and bytes, from shapes alone.

FLOP count a multiply-add as 2. Byte fields are what must move if every operand is read
or written once: `weight_bytes` weights, `kv_bytes` cache reads and writes, `state_bytes`
recurrent state, `act_bytes` activations. Costs are for ONE of `count` identical calls.
`beside_experts`: rows of an op that needs nothing of the routed experts, so that it can run at the
same time; 0 for all others.
"""

from dataclasses import dataclass

from specsim.ops.shapes import kind_of


@dataclass(frozen=True, slots=True)
class OpCost:
    """`shape` is what the kernel is called with, and decides how it is priced."""

    name: str
    shape: tuple[object, ...]  # a class of `ops.shapes`, or a plug-in's named tuple
    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    state_bytes: float = 0.0
    act_bytes: float = 0.0
    count: float = 1.0
    beside_experts: float = 0.0

    @property
    def kind(self) -> str:
        return kind_of(self.shape)

    @property
    def fmt(self) -> str:
        """Format of the weights, or of the cache."""
        return str(getattr(self.shape, "fmt", "bf16"))

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.state_bytes + self.act_bytes

    def called(self, shape: tuple[object, ...], count: float) -> "OpCost":
        """The same work as `count` calls of another shape. Written out: `dataclasses.replace` takes
        more than twice as long."""
        return OpCost(
            self.name, shape, self.flops, self.weight_bytes, self.kv_bytes, self.state_bytes,
            self.act_bytes, count, self.beside_experts,
        )
