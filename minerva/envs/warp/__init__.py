"""MuJoCo Warp: many MuJoCo simulations on one device, and the tasks that are defined on them."""
