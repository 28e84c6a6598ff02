"""Small parts that every algorithm uses."""
