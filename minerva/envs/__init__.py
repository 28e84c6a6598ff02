"""Environments: the only part of Minerva that uses gymnasium and dm_control, and the engines that step them."""
