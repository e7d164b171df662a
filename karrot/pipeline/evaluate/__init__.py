"""Judges consumer groups live from ``__consumer_offsets``: `job.Evaluate`. `verdict_delivery` sends the verdicts."""
