"""A keeper: a small process beside what was launched, one on each machine, that outlives the launching process.

::

    launcher                                              keeper of node 0, 1, … (python -m ….launchers.keeper)
    errand.json: what is to be run             ────────▶  claims its node once: node-0.json
                                                          starts the command, or torchrun's agent for it
    looks whether the keepers live             ◀────────  node-0.alive, touched again and again
    cancel.json: stop, and how long it may take ───────▶  SIGINT to the command; SIGKILL to all that is left of it
    reads how it went                          ◀────────  node-0.end.json

All of it are files in a folder of the run directory, which all machines see. So any process can ask and cancel, days
later, without a connection to the machine; and what is started twice for one launch runs once. Agents begin when every
node has its keeper. No time is compared with another machine's clock.
"""
