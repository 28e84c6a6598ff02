"""`python -m minerva` is the command `minerva`."""

from minerva.cli.main import entry

entry()
