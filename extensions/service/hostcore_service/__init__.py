"""The job service: takes jobs over HTTP, records them, and has launchers run them. It never trains.

::

    http/     what every request goes through: token, rate, body, errors
    jobs/     /v1/jobs            train/   /train, as specified elsewhere            page/   /
    guard/    the limits of jobs from others: from_others, places (with hosts, folders), declared
    store/    the database: jobs, and the leases on them
    dispatch/ the thread that launches what was recorded, and asks how it goes

Its door: the HTTP routes of the OpenAPI document, the page, ``hostcore serve``, ``--server`` of the commands, the
operator's file, and the database.
"""
