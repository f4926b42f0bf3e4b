"""The commands. Each loads the rest of the package when it is called."""
