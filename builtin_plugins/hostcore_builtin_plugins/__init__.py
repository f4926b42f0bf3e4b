"""The plugins that ship with hostcore. A plugin is a module; none is imported before a job names it.

Its door: the plugins by their names in a job, with their settings and the hooks of their kinds.
"""
