"""The fields of the state arrays that kernels read and update, by kernel.

A state is an array of int64. `setup.py` declares these numbers to the C compiler, like those of `header_tables` and `message_fields`.
"""

# --- `batch_walk.walk`: where the next walk goes on, and how many rows the table has
(
    BATCHES_END,
    BATCHES_COUNT,
) = range(2)
BATCHES_WIDTH = 2

# --- the kernels that write lines (`dump_text`, `json_lines`, `decoded_lines`, `message_rows`): the next row of the table of batches,
# and of the table of records
(
    LINES_ROW,
    LINES_RECORD,
) = range(2)
LINES_WIDTH = 2

# --- `verify_records.next_suspect`: about the previous batch
(
    SEEN_LAST,
    SEEN_EPOCH,
    SEEN_REASONS,
) = range(3)
SEEN_WIDTH = 3

# --- `verify_records.tally`
(
    SUM_LAST,
    SUM_CONTIGUOUS,  # 1 if the next batch is expected directly after SUM_LAST
    SUM_GAPS,
    SUM_MISSING,
    SUM_GAP_POSITION,
    SUM_GAP_OFFSET,
    SUM_RECORDS,
    SUM_WRAPPERS,
    SUM_MAX_TIMESTAMP,
    SUM_FUTURE,
    SUM_FUTURE_POSITION,
    SUM_FUTURE_OFFSET,
    SUM_FUTURE_TIMESTAMP,
    SUM_MAGICS,
    SUM_CLEANED,
    SUM_PRODUCERS,
) = range(16)
SUM_WIDTH = 16

# --- `verify_records.next_offset_entry` and `next_time_entry`
(
    ENTRY_SLOT,
    ENTRY_ROW,
    ENTRY_SEEN,
    ENTRY_FORMER,
    ENTRY_FORMER_LAST,
    ENTRY_EXACT,
    ENTRY_FIRST,
    ENTRY_INNER,
    ENTRY_BEYOND,
    ENTRY_FORMER_SLOT,
) = range(10)
ENTRY_WIDTH = 10

# --- `verify_records.next_record`
(
    RECORDS_BATCH,
    RECORDS_OFFSET,
    RECORDS_MAX,
    RECORDS_RULE,
    RECORDS_MISSED,
) = range(5)
RECORDS_WIDTH = 5

# --- `filter_batches`: the new log
(
    REWRITE_OUT,
    REWRITE_SPAN_START,
    REWRITE_SPAN_END,
    REWRITE_POSITION,
    REWRITE_ROWS,
    REWRITE_AT,
    REWRITE_ROW,
    REWRITE_PACKS,
    REWRITE_PACKED_TO,  # end of the last pending body in `out`
    REWRITE_RECORDS,  # number of kept records
    REWRITE_TAKEN,  # number of batches that stay unchanged
    REWRITE_REBUILT,
    REWRITE_EMPTIED,
    REWRITE_DROPPED,
    REWRITE_EMPTIED_LEGACY,
    REWRITE_NEGATIVE,  # number of rebuilt batches with timestamps below −1
) = range(16)
REWRITE_WIDTH = 16

# --- `filter_batches`: what applies to all batches
(
    RULE_UPPER,
    RULE_HORIZON,
    RULE_SHORT,
    RULE_PROTECTED,
) = range(4)
RULE_WIDTH = 4

# --- `keymap.put_rows` and `map_rows`
(
    MAP_SIZE,
    MAP_OFFSET,
    MAP_ROW,
    MAP_TOUCHED,
    MAP_STOPPED,
    MAP_TURNS,
) = range(6)
MAP_WIDTH = 6

# --- `key_verdicts.judge_rows`: totals
(
    TOTAL_INVALID,  # number of removed records without a key
    TOTAL_TOMBSTONES_KEPT,
    TOTAL_TOMBSTONES_REMOVED,
    TOTAL_LIVE,  # number of kept records with key and value, at or below the latest offset of the map
    TOTAL_SUPERSEDED,
    TOTAL_SUPERSEDED_BYTES,
    TOTAL_TOUCHED,
) = range(7)
TOTAL_WIDTH = 7

# --- `compare_records.compare_rows`
(
    PAIR_A,
    PAIR_B,
    PAIR_FIRST,
    PAIR_LAST,
    PAIR_EPOCHS,
    PAIR_ROW,
    PAIR_COMMON,
    PAIR_WHOLE,
) = range(8)
PAIR_WIDTH = 8

# --- `indexing.index_rows`
(
    INDEX_COUNTED_FROM,  # position of the batch with the last entry
    INDEX_MAX_TIMESTAMP,
    INDEX_OFFSET_OF_MAX,
    INDEX_END_POSITION,
    INDEX_OFFSET_ENTRIES,
    INDEX_LAST_OFFSET,  # of the last offset entry
    INDEX_TIME_ENTRIES,
    INDEX_LAST_TIMESTAMP,  # of the last time entry
    INDEX_LAST_TIME_OFFSET,
    INDEX_NEW_OFFSET_ENTRIES,  # written by this call
    INDEX_NEW_TIME_ENTRIES,
) = range(11)
INDEX_WIDTH = 11

# --- `record_walk` and `legacy_messages`
(
    WALK_ROW,
    WALK_NEXT,
    WALK_DONE,
    WALK_COUNT,
    WALK_ERROR,
    WALK_ERROR_AT,
) = range(6)
WALK_WIDTH = 6

# --- `key_exchange.copy_rows`: rows in `out`, the last offset that was met
(
    COPY_AT,
    COPY_LAST,
) = range(2)

# --- `key_exchange.fold_rows` and `ask_rows`
(
    FOLD_SIZE,
    FOLD_GONE,
    FOLD_TOUCHED,
) = range(3)

# --- `key_search`: limits
(
    LIMIT_LOWEST,
    LIMIT_ABOVE,
    LIMIT_EARLIEST,
) = range(3)
LIMIT_WIDTH = 3
