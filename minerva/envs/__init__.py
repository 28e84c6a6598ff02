"""Environments: the only part of Minerva that knows gymnasium, dm_control and the engines that step them."""
