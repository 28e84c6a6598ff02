"""What stands around training: analysis, benchmarks, clusters, export. No algorithm needs it."""
