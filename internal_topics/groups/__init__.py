"""Consumer, classic, share and streams groups, as their coordinators have them after loading `__consumer_offsets` and
`__share_group_state`.

`committed_offsets` and `group_metadata` replay the records, `group_replay` feeds them with a partition's log, `share_state` does
the same for share groups' progress, and `groups` builds the rows.
"""
