"""Training runs: folder, config, metrics, checkpoints, progress display and signal handling."""
