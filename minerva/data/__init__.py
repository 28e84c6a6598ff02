"""Storage for experience: rollouts for on-policy algorithms, a replay for off-policy ones."""
