"""The run directory: documents, leases, logs of a run, and its status.

Door:

    RunDirectory, runs_dir, cache_dir (directory)          the places of all files
    read_document, write_document, from_document (documents)   JSON documents, atomically, as attrs classes
    RunRecord (record), WorkerContract (contract), Launch (launch), RunResult (result)   documents of a run
    claim_attempt, read_claim, is_held, await_proof (attempts); Lease (lease)            the holder of a run
    request_cancel, read_cancel (control); Channel (channel)                             requests to a run, a worker
    summarize, list_runs, unrecorded (summary)             status of a run
    launcher_status, awaited_launch, launched_is_gone (launch)   status by the launcher
    History (history), RankOutput (output), follow (following)   event log and output, also while they grow
    Findings (findings); Retrained, known_causes (retrained)     warnings and best value by the log
    UseQuery, used_by (used)                               plugins and data of a run
    find_run (find)                                        run by a name that people type
"""
