# No high alarm acts on missing points (missing, never ignore or breaching): a dead monitor adds no task. Each alarm on
# the lag uses the statistic Maximum: if two Karrots publish the same group, a Sum doubles but a Maximum stays correct.

# Fires if there are unread messages and no task runs.
resource "aws_cloudwatch_metric_alarm" "wake_up" {
  for_each = local.from_zero

  alarm_name        = local.names[each.key]["wake-up-alarm"]
  alarm_description = "There are unread messages but no consumer runs"

  metric_query {
    id          = "unread"
    expression  = "IF(${local.no_task_runs}, lag, 0)"
    return_data = true
  }

  metric_query {
    id          = "lag"
    return_data = false

    metric {
      namespace   = var.namespace
      metric_name = "Lag"
      stat        = "Maximum"
      period      = 60
      dimensions  = each.value.group_dimensions
    }
  }

  metric_query {
    id          = "running"
    return_data = false

    metric {
      namespace   = local.utilization.namespace
      metric_name = local.utilization.metric_name
      stat        = "SampleCount"
      period      = 60
      dimensions  = each.value.service_dimensions
    }
  }

  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = each.value.wake_up_lag
  evaluation_periods  = 3
  datapoints_to_alarm = 3
  treat_missing_data  = "missing"
  alarm_actions       = [aws_appautoscaling_policy.wake_up[each.key].arn]
}

# Fires while the lag is at the threshold or above. Its action repeats every minute in this time.
resource "aws_cloudwatch_metric_alarm" "lag_high" {
  for_each = local.stepping

  alarm_name          = local.names[each.key]["lag-high-alarm"]
  alarm_description   = "The lag is too high"
  namespace           = var.namespace
  metric_name         = local.measured[each.key]
  dimensions          = each.value.group_dimensions
  statistic           = "Maximum"
  period              = each.value.high_resolution ? 10 : 60
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = each.value.threshold
  evaluation_periods  = 3
  datapoints_to_alarm = each.value.high_resolution ? 3 : 2
  treat_missing_data  = "missing"
  alarm_actions       = [aws_appautoscaling_policy.lag_high[each.key].arn]
}

# Fires after 15 minutes of low lag. Every one of these minutes needs a point (notBreaching): a silent monitor removes no
# task. With a minimum of 0 tasks, the threshold is 0: without a task, nothing reads the rest.
resource "aws_cloudwatch_metric_alarm" "lag_low" {
  for_each = local.stepping

  alarm_name          = local.names[each.key]["lag-low-alarm"]
  alarm_description   = "The lag has been low for a long time"
  namespace           = var.namespace
  metric_name         = local.measured[each.key]
  dimensions          = each.value.group_dimensions
  statistic           = "Maximum"
  period              = 60
  comparison_operator = "LessThanOrEqualToThreshold"
  threshold           = each.value.min_tasks > 0 ? each.value.threshold * 0.25 : 0
  evaluation_periods  = 15
  datapoints_to_alarm = 15
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_appautoscaling_policy.lag_low[each.key].arn]
}

# Fires if a partition is stuck, or if the consumer was stopped. A group that sleeps with unread messages is in ERR too,
# so with a minimum of 0 tasks the alarm waits until a task has started.
resource "aws_cloudwatch_metric_alarm" "status" {
  for_each = local.services

  alarm_name          = local.names[each.key]["status-alarm"]
  alarm_description   = "The group ${each.value.group} on ${each.value.burrow_cluster} is in ERR"
  namespace           = var.namespace
  metric_name         = "Status"
  dimensions          = each.value.group_dimensions
  statistic           = "Maximum"
  period              = 60
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 3 # ERR
  evaluation_periods  = each.value.min_tasks > 0 ? 5 : 15
  datapoints_to_alarm = each.value.min_tasks > 0 ? 5 : 15
  treat_missing_data  = "missing"
  alarm_actions       = local.notified
  ok_actions          = local.notified
}

# Fires after 15 minutes without a point of the group's lag: the group or its name is gone, or Karrot does not publish it.
# The threshold is never reached: only silence breaches.
resource "aws_cloudwatch_metric_alarm" "no_lag" {
  for_each = local.services

  alarm_name          = local.names[each.key]["no-lag-alarm"]
  alarm_description   = "CloudWatch gets no lag of the group ${each.value.group} on ${each.value.burrow_cluster}: nothing is scaled on its lag"
  namespace           = var.namespace
  metric_name         = local.measured[each.key]
  dimensions          = each.value.group_dimensions
  statistic           = "Maximum"
  period              = 60
  comparison_operator = "LessThanThreshold"
  threshold           = 0
  evaluation_periods  = 15
  datapoints_to_alarm = 15
  treat_missing_data  = "breaching"
  alarm_actions       = local.notified
  ok_actions          = local.notified
}

# Fires after 15 minutes at the maximum number of tasks. RunningTaskCount needs Container Insights on the ECS cluster.
resource "aws_cloudwatch_metric_alarm" "max_capacity" {
  for_each = local.services

  alarm_name          = local.names[each.key]["max-capacity-alarm"]
  alarm_description   = "The maximum capacity is reached: the lag may continue to grow"
  namespace           = (each.value.counts_samples ? local.utilization : local.running_tasks).namespace
  metric_name         = (each.value.counts_samples ? local.utilization : local.running_tasks).metric_name
  dimensions          = each.value.service_dimensions
  statistic           = each.value.counts_samples ? "SampleCount" : "Maximum"
  period              = 60
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = each.value.max_tasks
  evaluation_periods  = 15
  datapoints_to_alarm = 15
  treat_missing_data  = "missing"
  alarm_actions       = local.notified
  ok_actions          = local.notified
}

# Fires after five minutes without Heartbeat: Karrot or Burrow is silent. All groups of a Kafka cluster share this alarm.
# Names of ECS clusters and Auto Scaling groups have no colon, so its name is not the name of another alarm of Karrot's.
resource "aws_cloudwatch_metric_alarm" "heartbeat" {
  for_each = local.heartbeats # If burrow_cluster comes from a resource of the same apply, set the input heartbeats.

  alarm_name          = "karrot/kafka:${each.value}/heartbeat-alarm"
  alarm_description   = "Karrot or Burrow is silent: nothing is scaled on lag until both are back"
  namespace           = var.namespace
  metric_name         = "Heartbeat"
  dimensions          = { Cluster = each.value }
  statistic           = "Maximum"
  period              = 60
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  treat_missing_data  = "breaching"
  alarm_actions       = local.notified
  ok_actions          = local.notified
}
