"""Benchmarks: grids of algorithms, environments and seeds, each run trained, evaluated and stored as a small file."""
