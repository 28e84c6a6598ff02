"""The mathematics, once. Pure functions of tensors; they import torch and nothing of Minerva."""
