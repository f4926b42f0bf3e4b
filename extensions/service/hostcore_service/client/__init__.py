"""The commands against a service: they tell what they would tell of a run on this machine.

::

    address ▸ client ▸ patience ▸ jobs ▸ a module for each command
                          └ subscription: a stream that outlives its connection
"""
