"""Measure the machine and the bundled decoder on it: the grid that calibrates the model.

Nothing here knows the roofline: the records are all that passes to calibration. Times are seconds,
sizes bytes. Importing this package imports nothing; the modules need torch.
"""
