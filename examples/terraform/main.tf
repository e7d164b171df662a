# Scales three ECS services on the lag of their consumer groups, which are on two Kafka clusters.

provider "aws" {
  region = "eu-west-1"
}

module "karrot_scaling" {
  source = "../../terraform/karrot-scaling"

  sns_topic_arn = "arn:aws:sns:eu-west-1:123456789012:alarms"

  services = {
    # One task for each 3,000 unread messages.
    orders = {
      ecs_cluster         = "prod"
      service             = "orders-worker"
      burrow_cluster      = "prod-eu"
      group               = "orders"
      recipe              = "target-tracking"
      target_lag_per_task = 3000
      max_tasks           = 12
    }

    # One more task if a message waits for a minute, and at least six tasks for the batch at ten in the evening.
    payments = {
      ecs_cluster     = "prod"
      service         = "payments-worker"
      burrow_cluster  = "prod-eu"
      group           = "payments"
      recipe          = "step"
      max_lag_seconds = 60
      min_tasks       = 2
      max_tasks       = 8
      schedule        = [{ start = "21:55", end = "23:30", min_tasks = 6 }]
      timezone        = "Europe/Paris"
    }

    # No task while there is nothing to read.
    reports = {
      ecs_cluster     = "batch"
      service         = "reports-worker"
      burrow_cluster  = "prod-us"
      group           = "reports"
      recipe          = "from-zero"
      max_lag_seconds = 900
      max_tasks       = 4
    }
  }
}

output "karrot_settings" {
  description = "Set these for Karrot."
  value       = module.karrot_scaling.karrot_settings
}

output "publish_policy_arn" {
  description = "Attach this policy to Karrot's role."
  value       = module.karrot_scaling.publish_policy_arn
}
