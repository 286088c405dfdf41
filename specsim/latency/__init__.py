"""L3: seconds of one engine step: kernels, drafter passes, host; and device memory."""
