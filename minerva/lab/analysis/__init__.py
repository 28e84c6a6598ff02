"""Statistics, charts, reports and videos of runs."""
