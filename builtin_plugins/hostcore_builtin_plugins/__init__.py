"""The plugins that ship with hostcore. Each module is one plugin; none is imported before a job names it."""
