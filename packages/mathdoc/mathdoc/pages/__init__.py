"""The pages, as Markdown that any static site can host."""
