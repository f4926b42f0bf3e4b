"""Launch recorded jobs, and watch them to their end."""
