"""Algorithms times environments times seeds: a grid of runs, each trained, evaluated and kept as one small file."""
