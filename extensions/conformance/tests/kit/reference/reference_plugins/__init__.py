"""One complete plugin of each kind."""
