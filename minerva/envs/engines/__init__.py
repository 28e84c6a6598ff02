"""What steps environments, one file an engine."""
