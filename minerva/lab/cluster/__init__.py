"""Training on a Ray cluster or a local Ray. Only this package imports Ray, and only when it is used."""
