"""Alerts on partitions whose committed offset does not move: `alert_job.StaleAlerts`, by `stale_partition_rule`."""
