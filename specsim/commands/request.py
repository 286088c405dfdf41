"""Kept name: checked requests are built in `specsim.api.deployment`."""

from specsim.api.deployment import Request, build_request, build_workload

__all__ = ["Request", "build_request", "build_workload"]
