"""Runs on Ray, whatever machines that has. Nothing else imports Ray, and only when it is asked for."""
