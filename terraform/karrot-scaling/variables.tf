variable "services" {
  description = "The ECS services to scale, by names of your own."
  nullable    = false

  type = map(object({
    # The name of the ECS cluster.
    ecs_cluster = string
    # The name of the ECS service, whose tasks consume. It can be in the map only once.
    service = string
    # The name of the Kafka cluster in Burrow. Burrow writes the names of clusters in lower case.
    burrow_cluster = string
    # The name of the consumer group.
    group = string
    # The recipe: target-tracking, step or from-zero.
    recipe = string
    # The largest age of the oldest unread message, in seconds. For all recipes.
    max_lag_seconds = optional(number)
    # The lag of the group from which tasks are added, in messages. For step.
    max_lag = optional(number)
    # The lag that each task may have, in messages. For target-tracking and from-zero.
    target_lag_per_task = optional(number)
    # The lag that starts the first task, in messages. For from-zero.
    wake_up_lag = optional(number, 1)
    # The smallest number of tasks. If it is null, it is 0 for from-zero and 1 for the other recipes.
    min_tasks = optional(number)
    # The largest number of tasks. More tasks than partitions have nothing to read.
    max_tasks = number
    # Times with a higher minimum of tasks: objects with start, end, min_tasks and, if not for every day, days.
    schedule = optional(list(object({
      days      = optional(list(string), ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"])
      start     = string
      end       = string
      min_tasks = number
    })), [])
    # The time zone of schedule, such as Europe/Paris.
    timezone = optional(string, "UTC")
    # Seconds after a scale-out before the next one.
    scale_out_cooldown = optional(number, 60)
    # Seconds after a scale-in before the next one.
    scale_in_cooldown = optional(number, 300)
    # Whether the lag is checked every 10 seconds. For step.
    high_resolution = optional(bool, false)
    # Whether the ECS cluster has Container Insights, so that running tasks can be counted exactly.
    container_insights = optional(bool, false)
  }))

  validation {
    condition     = alltrue([for s in var.services : can(regex("^[A-Za-z0-9_-]{1,255}/[A-Za-z0-9_-]{1,255}$", "${s.ecs_cluster}/${s.service}"))])
    error_message = "ecs_cluster and service must be the names that ECS knows, up to 255 letters, digits, hyphens and underscores. Given: ${jsonencode({ for key, s in var.services : key => [s.ecs_cluster, s.service] })}."
  }

  validation {
    condition     = length(distinct([for s in var.services : "${s.ecs_cluster}/${s.service}"])) == length(var.services)
    error_message = "An ECS service can be in services only once, because it has only one scalable target. Given: ${jsonencode({ for key, s in var.services : key => "${s.ecs_cluster}/${s.service}" })}."
  }

  validation {
    condition = alltrue([
      for name in flatten([for s in var.services : [s.burrow_cluster, s.group]]) :
      can(regex("^[ -$&-~]*[!-$&-~][ -$&-~]*$", name)) && length(name) <= 200 && name != "(empty)"
    ])
    error_message = "burrow_cluster and group must be up to 200 printable ASCII characters without a percent sign. For another name, use karrot render ecs-autoscaling, which encodes it. Given: ${jsonencode({ for key, s in var.services : key => [s.burrow_cluster, s.group] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : contains(["target-tracking", "step", "from-zero"], s.recipe)])
    error_message = "recipe must be target-tracking, step or from-zero. Given: ${jsonencode({ for key, s in var.services : key => s.recipe })}."
  }

  validation {
    condition = alltrue([
      for s in var.services :
      length([for limit in [s.max_lag_seconds, s.max_lag, s.target_lag_per_task] : limit if limit != null]) == 1 &&
      (s.recipe == "step" ? s.target_lag_per_task : s.max_lag) == null
    ])
    error_message = "Each service needs exactly one limit of the lag: max_lag_seconds or max_lag for step, max_lag_seconds or target_lag_per_task for target-tracking and from-zero. Given: ${jsonencode({ for key, s in var.services : key => [s.recipe, s.max_lag_seconds, s.max_lag, s.target_lag_per_task] })}."
  }

  validation {
    condition = alltrue([
      for limit in flatten([for s in var.services : [s.max_lag_seconds, s.max_lag, s.target_lag_per_task, s.wake_up_lag]]) :
      limit > 0 && limit <= 1000000000000 if limit != null
    ])
    error_message = "max_lag_seconds, max_lag, target_lag_per_task and wake_up_lag must be above 0 and at most 1000000000000. Given: ${jsonencode({ for key, s in var.services : key => [s.max_lag_seconds, s.max_lag, s.target_lag_per_task, s.wake_up_lag] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : s.wake_up_lag == 1 || s.recipe == "from-zero"])
    error_message = "wake_up_lag goes with the recipe from-zero. Given: ${jsonencode({ for key, s in var.services : key => [s.recipe, s.wake_up_lag] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : !s.high_resolution || s.recipe == "step"])
    error_message = "high_resolution needs the recipe step: target tracking has periods of 60 seconds only. Given: ${jsonencode({ for key, s in var.services : key => [s.recipe, s.high_resolution] })}."
  }

  validation {
    condition = alltrue(flatten([
      for s in var.services : [
        for least in [coalesce(s.min_tasks, s.recipe == "from-zero" ? 0 : 1)] :
        0 <= least && least < s.max_tasks && s.max_tasks <= 10000 && floor(least) == least && floor(s.max_tasks) == s.max_tasks
      ]
    ]))
    error_message = "max_tasks must be larger than min_tasks, and both must be whole numbers from 0 to 10000. Given: ${jsonencode({ for key, s in var.services : key => [s.min_tasks, s.max_tasks] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : s.recipe != "from-zero" || coalesce(s.min_tasks, 0) == 0])
    error_message = "The recipe from-zero needs min_tasks 0. For 1 or more tasks, use target-tracking. Given: ${jsonencode({ for key, s in var.services : key => [s.recipe, s.min_tasks] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : s.recipe != "target-tracking" || coalesce(s.min_tasks, 1) >= 1])
    error_message = "The recipe target-tracking needs min_tasks 1 or more: only from-zero scales out from 0. Given: ${jsonencode({ for key, s in var.services : key => [s.recipe, s.min_tasks] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : s.recipe != "step" || s.max_lag != null || coalesce(s.min_tasks, 1) >= 1])
    error_message = "The recipe step with min_tasks 0 needs max_lag: without commits, the age of the lag may be unknown. Given: ${jsonencode({ for key, s in var.services : key => [s.recipe, s.min_tasks, s.max_lag] })}."
  }

  validation {
    condition = alltrue([
      for time in flatten([for s in var.services : s.schedule]) :
      can(regex("^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$", "${time.start}-${time.end}")) && time.start != time.end
    ])
    error_message = "start and end of a schedule must be two different times such as 01:55 and 22:00. Given: ${jsonencode({ for key, s in var.services : key => [for time in s.schedule : [time.start, time.end]] })}."
  }

  validation {
    condition = alltrue([
      for time in flatten([for s in var.services : s.schedule]) : length(time.days) > 0 && length(time.days) == length(distinct(time.days)) &&
      length(setsubtract(time.days, ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"])) == 0
    ])
    error_message = "days of a schedule must be different days of MON, TUE, WED, THU, FRI, SAT and SUN. Given: ${jsonencode({ for key, s in var.services : key => [for time in s.schedule : time.days] })}."
  }

  validation {
    condition = alltrue(flatten([
      for s in var.services : [
        for time in s.schedule :
        coalesce(s.min_tasks, s.recipe == "from-zero" ? 0 : 1) < time.min_tasks && time.min_tasks <= s.max_tasks && floor(time.min_tasks) == time.min_tasks
      ]
    ]))
    error_message = "min_tasks of a schedule must be a whole number above min_tasks of the service and at most max_tasks. Given: ${jsonencode({ for key, s in var.services : key => [s.min_tasks, [for time in s.schedule : time.min_tasks], s.max_tasks] })}."
  }

  validation {
    condition     = alltrue([for s in var.services : can(regex("^[A-Za-z0-9_+/-]+$", s.timezone))])
    error_message = "timezone must be the name of a time zone, such as Europe/Paris. Given: ${jsonencode({ for key, s in var.services : key => s.timezone })}."
  }

  validation {
    condition = alltrue([
      for seconds in flatten([for s in var.services : [s.scale_out_cooldown, s.scale_in_cooldown]]) :
      0 <= seconds && seconds <= 3600 && floor(seconds) == seconds
    ])
    error_message = "scale_out_cooldown and scale_in_cooldown must be whole numbers from 0 to 3600. Given: ${jsonencode({ for key, s in var.services : key => [s.scale_out_cooldown, s.scale_in_cooldown] })}."
  }
}

variable "namespace" {
  description = "Karrot's KARROT_CLOUDWATCH_NAMESPACE."
  type        = string
  default     = "Karrot"
  nullable    = false

  validation {
    condition     = can(regex("^[0-9A-Za-z._/#-][0-9A-Za-z._/#:-]{0,254}$", var.namespace)) && !startswith(var.namespace, "AWS/")
    error_message = "namespace must be 1 to 255 letters, digits or . - _ / # : and must not begin with a colon or AWS/. Given: ${jsonencode(var.namespace)}."
  }
}

variable "sns_topic_arn" {
  description = "The SNS topic of the alarms."
  type        = string
  default     = null

  validation {
    condition     = var.sns_topic_arn == null ? true : can(regex("^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$", var.sns_topic_arn))
    error_message = "sns_topic_arn must be the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:alarms. Given: ${jsonencode(var.sns_topic_arn)}."
  }
}

variable "shared" {
  description = "Creates the heartbeat alarms and the IAM policy. Set it to false in a second use of the module for the same Kafka clusters."
  type        = bool
  default     = true
  nullable    = false
}

variable "heartbeats" {
  description = "The Kafka clusters that get a heartbeat alarm, by names of your own. The default is each burrow_cluster."
  type        = map(string)
  default     = null
}
