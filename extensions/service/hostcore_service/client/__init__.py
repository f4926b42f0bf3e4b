"""The client of a service, which ``--server`` selects in place of a folder of this machine.

::

    client ▸ timeouts ▸ jobs ▸ status, logs ▸ run ▸ watch ▸ runs
                  └ subscription: a stream that outlives its connection
"""
