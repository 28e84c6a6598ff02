"""A run's folder and everything written to it: config, metrics, checkpoints, progress, signals."""
