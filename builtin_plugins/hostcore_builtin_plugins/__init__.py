"""The plugins that ship with hostcore. A plugin is a module; none is imported before a job names it."""
