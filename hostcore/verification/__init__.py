"""Checks of a run: that it has lost, skipped and repeated nothing. ``hostcore verify`` makes them.

Door:

    examine_run (run_checks)                             all checks of a run
    LogRecord.read (log_record)                          event log, in one pass
    check_log, check_retrained (log_checks)              log and result agree; steps that were trained twice are equal
    examine_checkpoints, check_story (checkpoint_checks) files of checkpoints; those that should be there
    check_order, owed_of (order_checks)                  rows of each checkpoint are those of its steps
    RunCheck, judged (checks)                            a finding
"""
