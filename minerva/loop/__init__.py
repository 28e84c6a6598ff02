"""What runs any algorithm: agents as one stack, collectors, the on-policy and the off-policy loop."""
