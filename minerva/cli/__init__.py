"""The command `minerva`, one file a verb."""
