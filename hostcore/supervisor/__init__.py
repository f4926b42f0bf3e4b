"""The supervisor: plans a run, starts its workers, watches them, reports, and writes its result. No torch here.

Door:

    make_plan (plan)                          job -> RunPlan, or all errors of the job
    bring_here (remote.bringing)              inputs, checkpoints and runs of a mirror that a plan needs
    open_run, examine_run (opening)           plan -> the next attempt, the result of a finished run, or RunConflict
    run_attempts (attempt.restarting), supervise (attempt.supervise)   attempts of a run -> RunResult
    submit, dry_run (submit)                  plan -> a run of a launcher
    cancel, ask_to_end (cancelling)           end of a run, in every state
    check_job (check), evaluate (evaluate)    worker's findings about a job; metrics of a checkpoint
    inspect_run, checkpoints_in (run_status)  status of a run
    remove_run, leftovers (removing)          removal of runs
    Replay, uploads_of (delivery.redelivery)  events and files, delivered by hand
    refresh (remote.watching)                 copy of a remote run
    quick_warnings (quick_checks)             warnings about the machine before an attempt
    read_operator_file (operator_file), authorize (authorizing)            decisions of the operator
"""
