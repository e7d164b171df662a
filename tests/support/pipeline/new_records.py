"""Makes the new records of a bucket from the batches of `support.pipeline.evaluate_model`."""

import pyarrow as pa

from karrot.pipeline.evaluate.bucket_records import NewRecords
from karrot.pipeline.evaluate.bucket_verdicts import COMMIT, DELETION, MEMBER, new_records
from support.pipeline.evaluate_model import Batch

KEYS = {name: hash_ for hash_, name in enumerate(("g0", "g1", "g2", "t0", "t1", "t2", "g", "a", "b"), 1_000_003)}
"""Numbers that stand for the hashes of names."""


_COLUMNS = pa.schema(
    {
        "kind": pa.string(),
        **dict.fromkeys(("group_key", "topic_key", "partition", "order", "offset"), pa.int64()),
        **dict.fromkeys(("timestamp_ms", "at_ms"), pa.int64()),
        **dict.fromkeys(("group", "topic", "owner", "client_id"), pa.string()),
    }
)


def records_of(batch: Batch) -> NewRecords:
    rows: list[dict[str, object]] = [
        {"kind": COMMIT, **each._asdict(), "topic_key": KEYS[each.topic]} for each in batch.commits
    ]
    rows += [{"kind": DELETION, "group": group, "order": order} for group, order in batch.deleted.items()]
    for each in batch.rebalances:
        record = {"kind": MEMBER, "group": each.group, "order": each.order, "at_ms": each.at_ms}
        owned = [
            {**record, "topic": topic, "partition": number, "owner": owner, "client_id": client_id}
            for (topic, number), (owner, client_id) in each.owners.items()
        ]
        rows += owned or [record]
    keyed = [{**row, "group_key": KEYS[str(row["group"])]} for row in rows]
    return new_records(pa.Table.from_pylist(keyed, _COLUMNS))
