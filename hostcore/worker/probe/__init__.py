"""What ``hostcore doctor`` asks of the interpreter that trains: torch, each device, and several ranks together.

Each module is run in a process of its own, which writes one JSON object a line on standard output:
``{"doing": …}`` before what may hang, ``{"error": …}`` if it cannot go on, and the answer.
"""
