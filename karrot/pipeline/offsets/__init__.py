"""Writes Kafka's ``__consumer_offsets`` (`job.LandOffsets`) and log ends (`log_ends.LogEndPolls`) into tables."""
