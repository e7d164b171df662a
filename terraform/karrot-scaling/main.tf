locals {
  # The options of each service, after the defaults of its recipe.
  services = {
    for key, s in var.services : key => merge(s, {
      min_tasks = coalesce(s.min_tasks, s.recipe == "from-zero" ? 0 : 1)
      threshold = coalesce(s.max_lag_seconds, s.max_lag, s.target_lag_per_task)
      by_age    = s.max_lag_seconds != null

      # Running tasks are counted by the samples of their CPU utilization. Without a task there is no sample, so the last
      # count would go on. Only the recipe from zero needs the zero.
      counts_samples = !s.container_insights && s.recipe != "from-zero"

      group_dimensions   = tomap({ Cluster = s.burrow_cluster, ConsumerGroup = s.group })
      service_dimensions = tomap({ ClusterName = s.ecs_cluster, ServiceName = s.service })
    })
  }

  # The Kafka clusters with a heartbeat alarm. Terraform must know the keys before the apply.
  all_heartbeats = var.heartbeats != null ? var.heartbeats : tomap({ for name in toset([for s in local.services : s.burrow_cluster]) : name => name })
  heartbeats     = { for key, name in local.all_heartbeats : key => name if var.shared }

  tracking  = { for key, s in local.services : key => s if s.recipe != "step" }
  stepping  = { for key, s in local.services : key => s if s.recipe == "step" }
  from_zero = { for key, s in local.services : key => s if s.recipe == "from-zero" }

  # The metric that the policies read. A stuck partition is in Lag and LagSeconds, but more tasks do not help it. While no
  # task runs, every partition is stuck, so a recipe that may stop the last task reads these two.
  measured = {
    for key, s in local.services :
    key => "${s.min_tasks > 0 ? "Scalable" : ""}Lag${s.by_age ? "Seconds" : ""}"
  }

  # The metrics that Karrot must send for each service.
  needed = {
    for key, metric in local.measured : key =>
    sort(distinct(concat(["Status", metric], local.services[key].recipe == "from-zero" ? ["Lag"] : [])))
  }

  # Each running task has a sample of CPUUtilization a minute. RunningTaskCount needs Container Insights.
  utilization   = { namespace = "AWS/ECS", metric_name = "CPUUtilization" }
  running_tasks = { namespace = "ECS/ContainerInsights", metric_name = "RunningTaskCount" }

  # ECS may publish no value while no task runs. FILL gives the previous value for a late one, and 0 without any.
  no_task_runs = "FILL(FILL(running, REPEAT), 0) < 1"

  # Metric math of target tracking. By age, target-tracking needs none.
  #
  # points / points is 1 if the lag has a point, and gives no value if it has none: a silent Karrot scales nothing. With a
  # resolution of 20 seconds, a task has three samples a minute. IF divides by 3 where there are more samples than tasks
  # are allowed. While no task runs, from-zero holds the value at the target. There, the lag is the last argument of IF,
  # where a missing value gives no value. docs/autoscaling.md explains each expression.
  expressions = {
    for key, s in local.tracking : key => (
      s.recipe == "from-zero" && s.by_age ? "IF(${local.no_task_runs}, ${s.threshold}, lag)" :
      s.recipe == "from-zero" ? "IF(${local.no_task_runs}, ${s.threshold}, lag / (FILL(running, REPEAT) * points / points))" :
      s.by_age ? null :
      s.counts_samples ? "lag / (running / IF(${s.max_tasks} < running, 3, 1) * points / points)" :
      "lag / (running * points / points)"
    )
  }

  # The metrics that the expressions name.
  operands = {
    for key, s in local.tracking : key => {
      for id, metric in {
        lag = {
          namespace   = var.namespace
          metric_name = local.measured[key]
          dimensions  = s.group_dimensions
          stat        = "Maximum"
        }
        points = {
          namespace   = var.namespace
          metric_name = local.measured[key]
          dimensions  = s.group_dimensions
          stat        = "SampleCount"
        }
        running = merge(s.counts_samples || s.by_age ? local.utilization : local.running_tasks, {
          dimensions = s.service_dimensions
          stat       = s.counts_samples || s.by_age ? "SampleCount" : "Average"
        })
      } : id => metric if local.expressions[key] != null && !(id == "points" && s.by_age)
    }
  }

  # The times with another minimum, in minutes. Days are numbers, 0 is Monday.
  week = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
  times = {
    for key, s in local.services : key => [
      for time in s.schedule : {
        days      = [for day in time.days : index(local.week, day)]
        start     = tonumber(substr(time.start, 0, 2)) * 60 + tonumber(substr(time.start, 3, 2))
        end       = tonumber(substr(time.end, 0, 2)) * 60 + tonumber(substr(time.end, 3, 2))
        min_tasks = time.min_tasks
      }
    ]
  }

  # How many minutes after the beginning of one time another one begins, and how many minutes the first one lasts.
  gaps = {
    for key, times in local.times : key => flatten([
      for first, one in times : [
        for second, two in times : [
          for days in setproduct(one.days, two.days) : {
            minutes = (days[1] * 1440 + two.start - days[0] * 1440 - one.start + 10080) % 10080
            lasts   = (one.end - one.start + 1440) % 1440
          } if first != second
        ]
      ]
    ])
  }

  # At the beginning, an action sets the minimum of the time. At the end, an action sets the usual one, after midnight on
  # the next day.
  actions = merge([
    for key, s in local.services : merge([
      for number, time in local.times[key] : {
        "${key}-${number + 1}-begin" = {
          service   = key
          name      = "karrot-${number + 1}-begin"
          days      = time.days
          minute    = time.start
          min_tasks = time.min_tasks
        }
        "${key}-${number + 1}-end" = {
          service   = key
          name      = "karrot-${number + 1}-end"
          days      = [for day in time.days : (day + (time.end < time.start ? 1 : 0)) % 7]
          minute    = time.end
          min_tasks = s.min_tasks
        }
      }
    ]...)
  ]...)

  # The names of policies and alarms. CloudWatch allows 255 characters, so a longer name ends in a part of its digest.
  parts = ["wake-up-policy", "wake-up-alarm", "lag-tracking", "lag-high-policy", "lag-high-alarm", "lag-low-policy", "lag-low-alarm", "status-alarm", "no-lag-alarm", "max-capacity-alarm"]
  names = {
    for key, s in local.services : key => {
      for part, name in { for part in local.parts : part => "karrot/${s.ecs_cluster}/${s.service}/${part}" } :
      part => length(name) <= 255 ? name : "${substr(name, 0, 246)}~${substr(sha256(name), 0, 8)}"
    }
  }

  # The alarms for people have no other action. No policy may use them.
  notified = var.sns_topic_arn == null ? null : [var.sns_topic_arn]
}

resource "aws_appautoscaling_target" "service" {
  for_each = local.services

  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = "service/${each.value.ecs_cluster}/${each.value.service}"
  min_capacity       = each.value.min_tasks
  max_capacity       = each.value.max_tasks

  lifecycle {
    precondition {
      condition     = alltrue([for gap in local.gaps[each.key] : gap.minutes > gap.lasts])
      error_message = "Two times in schedule of ${each.key} overlap or touch, so the minimum would be ambiguous."
    }

    precondition {
      condition     = !var.shared || contains(values(local.all_heartbeats), each.value.burrow_cluster)
      error_message = "heartbeats must contain the burrow_cluster of ${each.key}."
    }
  }
}

# The minimum is higher at these times, so the tasks run before the messages come. The end sets the usual minimum, and the
# policies then remove tasks.
resource "aws_appautoscaling_scheduled_action" "schedule" {
  for_each = local.actions

  name               = each.value.name
  service_namespace  = aws_appautoscaling_target.service[each.value.service].service_namespace
  scalable_dimension = aws_appautoscaling_target.service[each.value.service].scalable_dimension
  resource_id        = aws_appautoscaling_target.service[each.value.service].resource_id
  timezone           = local.services[each.value.service].timezone

  schedule = format(
    "cron(%d %d ? * %s *)", each.value.minute % 60, floor(each.value.minute / 60),
    length(each.value.days) == 7 ? "*" : join(",", [for day, name in local.week : name if contains(each.value.days, day)]),
  )

  scalable_target_action {
    min_capacity = each.value.min_tasks
  }
}

# Keeps the measure at the target. AWS makes the alarms of this policy, and they treat missing points as missing.
resource "aws_appautoscaling_policy" "lag_tracking" {
  for_each = local.tracking

  name               = local.names[each.key]["lag-tracking"]
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.service[each.key].service_namespace
  scalable_dimension = aws_appautoscaling_target.service[each.key].scalable_dimension
  resource_id        = aws_appautoscaling_target.service[each.key].resource_id

  target_tracking_scaling_policy_configuration {
    scale_out_cooldown = each.value.scale_out_cooldown
    scale_in_cooldown  = each.value.scale_in_cooldown
    target_value       = each.value.threshold

    customized_metric_specification {
      namespace   = local.expressions[each.key] == null ? var.namespace : null
      metric_name = local.expressions[each.key] == null ? local.measured[each.key] : null
      statistic   = local.expressions[each.key] == null ? "Maximum" : null

      dynamic "dimensions" {
        for_each = { for name, value in each.value.group_dimensions : name => value if local.expressions[each.key] == null }

        content {
          name  = dimensions.key
          value = dimensions.value
        }
      }

      dynamic "metrics" {
        for_each = local.expressions[each.key] == null ? [] : [local.expressions[each.key]]

        content {
          id          = each.value.recipe == "from-zero" ? "held" : "backlog"
          expression  = metrics.value
          return_data = true
        }
      }

      dynamic "metrics" {
        for_each = local.operands[each.key]

        content {
          id          = metrics.key
          return_data = false

          metric_stat {
            stat = metrics.value.stat

            metric {
              namespace   = metrics.value.namespace
              metric_name = metrics.value.metric_name

              dynamic "dimensions" {
                for_each = metrics.value.dimensions

                content {
                  name  = dimensions.key
                  value = dimensions.value
                }
              }
            }
          }
        }
      }
    }
  }
}

# Starts exactly one task. Its alarm fires only while no task runs, so it does not set a busy service back to one task.
resource "aws_appautoscaling_policy" "wake_up" {
  for_each = local.from_zero

  name               = local.names[each.key]["wake-up-policy"]
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.service[each.key].service_namespace
  scalable_dimension = aws_appautoscaling_target.service[each.key].scalable_dimension
  resource_id        = aws_appautoscaling_target.service[each.key].resource_id

  step_scaling_policy_configuration {
    adjustment_type         = "ExactCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = each.value.scale_out_cooldown

    step_adjustment {
      scaling_adjustment          = 1
      metric_interval_lower_bound = 0
    }
  }
}

# Adds 1 task below 2 times the threshold, 2 tasks below 4 times the threshold, and 4 tasks above that.
resource "aws_appautoscaling_policy" "lag_high" {
  for_each = local.stepping

  name               = local.names[each.key]["lag-high-policy"]
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.service[each.key].service_namespace
  scalable_dimension = aws_appautoscaling_target.service[each.key].scalable_dimension
  resource_id        = aws_appautoscaling_target.service[each.key].resource_id

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = each.value.scale_out_cooldown

    step_adjustment {
      scaling_adjustment          = 1
      metric_interval_lower_bound = 0
      metric_interval_upper_bound = each.value.threshold
    }

    step_adjustment {
      scaling_adjustment          = 2
      metric_interval_lower_bound = each.value.threshold
      metric_interval_upper_bound = each.value.threshold * 3
    }

    step_adjustment {
      scaling_adjustment          = 4
      metric_interval_lower_bound = each.value.threshold * 3
    }
  }
}

resource "aws_appautoscaling_policy" "lag_low" {
  for_each = local.stepping

  name               = local.names[each.key]["lag-low-policy"]
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.service[each.key].service_namespace
  scalable_dimension = aws_appautoscaling_target.service[each.key].scalable_dimension
  resource_id        = aws_appautoscaling_target.service[each.key].resource_id

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = each.value.scale_in_cooldown

    step_adjustment {
      scaling_adjustment          = -1
      metric_interval_upper_bound = 0
    }
  }
}

# All permissions that Karrot needs to publish, only in its own namespace. Attach the policy to Karrot's role.
resource "aws_iam_policy" "publish" {
  count = var.shared ? 1 : 0

  name_prefix = "karrot-cloudwatch-"
  description = "Karrot may publish metrics only in its own namespace"

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "cloudwatch:PutMetricData"
      Resource  = "*"
      Condition = { StringEquals = { "cloudwatch:namespace" = var.namespace } }
    }]
  })
}
