"""Alerts on partitions whose committed offset does not move: `stale_judge.StaleJudge`, by `stale_partition_rule`."""
