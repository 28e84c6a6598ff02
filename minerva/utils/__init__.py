"""Utilities: the documented path of `RunningNorm`, and logging to Weights & Biases."""
