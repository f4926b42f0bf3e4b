"""Delivery: what a run produces, brought to its reporters and uploaders, so that none can hurt the run or another.

In flow the event log, which the supervisor alone appends to, and the checkpoints, samples and documents of the run
directory. Out flow calls of plugins, guarded one by one, and the record of those that succeeded::

    events.jsonl ─┬▶ EventSource ─▶ Subscriber "tensorboard" ─▶ report_event      ─▶ cursors/tensorboard.json
                  ├▶ EventSource ─▶ Subscriber "mlflow"      ─▶ report_event      ─▶ cursors/mlflow.json
                  │
                  └▶ Uploads ─▶ ArtifactSource ─▶ Subscriber "fsspec" ─▶ upload_artifact ─▶ uploads.jsonl

The supervisor's loop announces that the log has grown and writes the events of failures; it never waits here. A
subscriber has threads of its own, and is served *at least once*: a cursor or a line of the ledger is written after the
call has returned. The next attempt goes on behind it, and so do ``hostcore replay`` and ``hostcore upload``, which are
the same subscribers by hand (``redelivery``).

Every subscriber has one breaker and one :class:`~hostcore.supervisor.delivery.subscriber.Outage`; the sources differ.
Events have an order and stay in the log: one thread, one cursor, and an event that fails holds up those behind it.
Files are large and have no order but a commit record behind its files: several threads, a file that fails goes to the
end, and a ledger by place, path and SHA-256. The worker retires checkpoints that are not kept, and the scheduler of
uploads removes them when no uploader lacks them.
"""
