"""Judges consumer groups live from ``__consumer_offsets``: `job.Evaluate`. `verdict_delivery` has the receivers."""
