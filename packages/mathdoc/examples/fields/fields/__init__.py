"""Formulas of three fields in three libraries: a Kalman filter in NumPy, attention in PyTorch, Adam in JAX."""
