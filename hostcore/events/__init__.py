"""The event log: written by each rank, merged by the supervisor, read while it grows.

Door:

    RankLog, now_ms (writer)                        events of one rank
    RankTail, EventLog (merger)                     logs of ranks -> one numbered log
    GrowingLog, read_events, newest_lines (reader)  lines and events of a log, also while it grows
    encode_event, decode_event (codec)              event <-> line
    bounded, bounded_record (bounds)                texts of bounded length
    KINDS (kinds)                                   the meaning of each event to a reader
    open_regular (regular_file), dump (strict_json), sync_folder (folder_sync)
"""
