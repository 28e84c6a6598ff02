"""The training loops of all algorithms: agents in a stack, collectors, the on-policy and the off-policy loop."""
