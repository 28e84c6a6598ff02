"""The `minerva` command line: one file per subcommand."""
