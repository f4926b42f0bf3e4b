"""The run client of a service: what ``--server`` asks in place of a folder of this machine.

::

    client ▸ timeouts ▸ jobs ▸ status, logs, watch ▸ runs
                  └ subscription: a stream that outlives its connection
"""
