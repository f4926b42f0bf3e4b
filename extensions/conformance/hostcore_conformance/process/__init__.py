"""Processes of the kit: a plugin is checked in one of its own, which it may kill, hang or change.

``parent`` starts ``child``, and they exchange the messages of ``exchange``. ``fork_server`` makes the processes of
single checks; ``import_probe`` finds the effects of importing a plugin, ``state`` and ``resources`` what it leaves
behind.
"""
