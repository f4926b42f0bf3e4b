"""Checkpoints: written so that each is there whole or not at all, found again, and pruned.

Door:

    commit, Draft (commit)                            files of a folder -> a checkpoint
    newest, committed, load_record, verify (find)     checkpoints of a folder, with reasons for those passed over
    prune (prune)                                     removal of old checkpoints
    CommitRecord (record)                             files of a checkpoint with sizes and SHA-256
    StateBuffer, write_state (snapshot), read_state (state), ShardBuffer (sharded)   training state <-> files; torch

Only ``snapshot``, ``state`` and ``sharded`` need torch.
"""
