"""Benchmarks: a grid of algorithms, environments and seeds; each run is trained, evaluated and stored as a small file."""
