"""Reads the rows that Spark gives to ``mapInArrow``: whole keys at a time, and columns as arrays."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from karrot.pipeline.window_arrays.judge_windows import Ints, begins


def whole_keys(batches: Iterable[pa.RecordBatch], key: str, at_once: int) -> Iterator[pa.Table]:
    """Yield tables of about ``at_once`` rows. All rows with the same ``key`` are in one table: the rows are sorted."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        keys = ints(batch, key)
        cut = int(np.flatnonzero(begins(keys))[-1]) if len(keys) else 0
        if held and sum(map(len, held)) >= at_once and (cut or keys[0] != ints(held[-1], key)[-1]):
            yield pa.Table.from_batches([*held, batch.slice(0, cut)])
            held = []
            batch = batch.slice(cut)  # noqa: PLW2901 (the rest of the batch)
        if len(batch):
            held.append(batch)
    if held:
        yield pa.Table.from_batches(held)


def ints(rows: pa.RecordBatch | pa.Table, name: str) -> Ints:
    """Convert a column to an array, with 0 for NULL."""
    column = rows.column(name)
    numbers: Ints = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64, copy=False)
