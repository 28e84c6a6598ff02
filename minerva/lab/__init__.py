"""Tools around training: analysis, benchmarks, clusters, export. No algorithm depends on them."""
