"""The algorithms. Each folder has the same four files: config, losses, agent, trainer."""
