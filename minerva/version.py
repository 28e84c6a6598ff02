"""The version of Minerva, once."""

__version__ = "0.1.0"
