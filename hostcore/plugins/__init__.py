"""Plugins: installed, selected by a job, and the components made from them.

Three words, three modules: *installed* (metadata read, :mod:`~hostcore.plugins.installed`), *selected* (named by a
job, :mod:`~hostcore.plugins.resolve`), *loaded* (imported and constructed, :mod:`~hostcore.plugins.component`).
"""
