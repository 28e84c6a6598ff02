"""Pictures and statistics of finished runs."""
