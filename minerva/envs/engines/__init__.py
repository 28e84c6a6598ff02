"""Engines, which step environments: one file each."""
