"""Options of disaggregated serving."""

from typing import Self

from pydantic import model_validator

from specsim.errors import UsageError
from specsim.options.declare import OptionSet, declared, opt


class ApartOptions(OptionSet, section="Deployment"):
    """Prefill and decoding on replicas apart."""

    prefill_replicas: int | None = opt(
        None, help="Disaggregated serving: replicas that compute prompts only.", ge=1, le=4096,
    )
    decode_replicas: int | None = opt(
        None, help="Disaggregated serving: replicas that decode only.", ge=1, le=4096,
    )
    prefill_tp: int | None = opt(
        None, help="Tensor parallelism of a prefill replica. Default: --tp.",
        ge=1, le=1024,
    )
    kv_link: str | None = opt(
        None,
        help="Link of one GPU over which KV caches are sent: GB/s, inf, nvlink, eth-25, eth-100, "
             "ib-200, ib-400, ib-800, pcie4-x16 or pcie5-x16. Default: 40, a 400 Gbit/s card.",
    )
    kv_transfer: str | None = opt(
        None, choices=("whole", "chunks"),
        help="whole: a cache is sent once its prompt is computed; chunks: as it is computed. "
             "Default: whole.",
    )

    @model_validator(mode="after")
    def _both_kinds(self) -> Self:
        given = [item.flag for name, item in declared(ApartOptions).items()
                 if getattr(self, name) is not None]
        if given and (self.prefill_replicas is None or self.decode_replicas is None):
            raise UsageError(
                f"{given[0]} is given, but prompts and decoding are apart only where both "
                "--prefill-replicas and --decode-replicas say how many replicas do which; give both"
            )
        return self
