"""Plugins: what is installed, what a job names, and the components made from it.

Three words, three modules: *discovered* (metadata read, :mod:`~hostcore.plugins.discover`), *selected* (named by a job,
:mod:`~hostcore.plugins.resolve`), *loaded* (imported and constructed, :mod:`~hostcore.plugins.component`).
"""
