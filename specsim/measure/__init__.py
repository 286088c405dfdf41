"""Measure the machine and the bundled decoder on it: the grid that calibrates the model.

    grid          what is measured, in the order of its worth: kernels first, whole steps after
    timer         repeated timings: eager on the CPU, CUDA graphs and events on a GPU
    environment   device, software, clocks, code version
    session       models, memory rate, and what a point is expected to cost
    ceilings, gemm, attention, sampling, steps, moe, prefill, serving    the parts A to H
    run           the loop: budget, resume, one flushed line per point

Nothing here knows the roofline: the records are all that passes to calibration. Times are seconds,
sizes bytes. Importing this package imports nothing; the modules need torch.
"""
