"""Stores: places that fsspec has a file system for, this machine's folders among them.

In: a URI with storage options. Out: the files there (``location``), a file brought here, checked by size and SHA-256
(``get``), a file written there, whole or not at all (``put``, ``copying``, ``folder``), and one exception for each
thing that a store can mean (``errors``). Sources, uploaders, and the host's mirror and inputs stand on it.
"""
