"""The version of Minerva."""

__version__ = "0.1.0"
