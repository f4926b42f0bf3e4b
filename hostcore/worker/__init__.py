"""The training process: one per rank. Torch lives here.

Door:

    python -m hostcore.worker CONTRACT        a rank: events in its log, requests and answers on its channel
    run_attempt, evaluate_alone (attempt)     an attempt, an evaluation, in this process
    train (loop)                              order of the hooks of a training
    dataset_feed, mock_feed, check_identity (feed.feed), evaluation_feed (feed.evaluation)   batches of a rank
    ShuffledOrder (feed.order), row_digest, expected_digest (feed.digest)   order of the rows, and its proof
    make_transformer (feed.transform)         ``transform_batch``, here or in processes ahead of the loop
    available_devices, checked_device (devices), check_products (probe.product)   devices
    join (ranks.group)                        ranks that train together

Tests of ranks start real ones (``tests/e2e/ranks``, ``tests/e2e/ranks_worker``).
"""
