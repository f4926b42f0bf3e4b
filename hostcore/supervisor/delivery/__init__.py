"""From the event log to the reporters: a thread and a cursor for each, so that none can hurt the run or another.

::

    Journal ▸ events.jsonl ─┬▸ LogView ▸ Courier "reporter tensorboard" ▸ report_event
                            └▸ LogView ▸ Courier "reporter mlflow"      ▸ report_event
                                          └ cursors/mlflow.json, Breaker

The supervisor's loop never waits for any of it: it announces that the log has grown, and takes the news of failures.
"""
