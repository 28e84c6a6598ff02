"""Maximum a posteriori Policy Optimisation (Abdolmaleki et al. 2018), with decoupled constraints."""
