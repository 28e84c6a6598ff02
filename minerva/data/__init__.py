"""Storage for experience: rollouts for on-policy algorithms."""
