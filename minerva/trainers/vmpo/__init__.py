"""V-MPO, on-policy MPO (Song et al. 2019)."""
