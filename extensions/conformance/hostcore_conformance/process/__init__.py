"""Processes of the kit: a plugin is checked in one of its own, which it may kill, hang or change.

``parent`` starts ``child``, and they speak as ``exchange`` says. ``fork_server`` makes the processes that single checks
need; ``import_probe`` is what importing a plugin does to a process, ``state`` and ``resources`` what it leaves behind.
"""
