"""Delivery: what a run produces, brought to its reporters and uploaders, so that none can hurt the run or another.

In flow the event log, which the supervisor alone appends to, and what its events tell of: checkpoints, samples, and
documents. Out flow calls of plugins, guarded one by one, and the record of those that succeeded::

    events.jsonl ─┬▶ LogView ─▶ ReporterWorker "tensorboard" ─▶ report_event      ─▶ cursors/tensorboard.json
                  ├▶ LogView ─▶ ReporterWorker "mlflow"      ─▶ report_event      ─▶ cursors/mlflow.json
                  │
                  └▶ Uploads ─▶ UploadScheduler ─▶ UploadWorkers "fsspec" ─▶ upload_artifact ─▶ uploads.jsonl

The supervisor's loop announces that the log has grown and takes the news of failures; it never waits here. Each
subscription has threads of its own, and is served *at least once*: a cursor or a line of the ledger is written after
the call has returned. The next attempt goes on behind it, and so do ``hostcore replay`` and ``hostcore upload``.

What is the same for both is here once: the use of a component (``subscription``), the call with its deadline, retries
and breaker (``calls``), delivery by hand (``redelivery``). The workers differ, since what they deliver does. Events
have an order and stay in the log: one thread, one cursor, and an event that fails holds up those behind it. Files are
large and have no order but a commit record behind its files: several threads, a queue into which a file that fails is
put back, and a ledger by place, path and SHA-256. The worker retires checkpoints that are not kept, and the scheduler
removes them when no uploader lacks them.
"""
