"""Proximal Policy Optimisation (Schulman et al. 2017) with the details of Huang et al. (2022)."""
