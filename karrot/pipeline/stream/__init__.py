"""Has the parts of every streaming query: record sources, checkpoints, and the query runner."""
