output "publish_policy_arn" {
  description = "The ARN of the IAM policy to attach to Karrot's role. It is null if shared is false."
  value       = var.shared ? aws_iam_policy.publish[0].arn : null
}

output "karrot_settings" {
  description = "The settings that Karrot needs for these services. KARROT_REPORTERS must also contain cloudwatch."

  value = merge(
    {
      KARROT_CLOUDWATCH_METRICS   = join(",", sort(distinct(flatten(values(local.needed)))))
      KARROT_CLOUDWATCH_NAMESPACE = var.namespace
    },
    # An alarm with a period of 10 seconds cannot use metrics that are stored by the minute.
    { for name, value in { KARROT_CLOUDWATCH_RESOLUTION = "1", KARROT_CLOUDWATCH_INTERVAL = "10" } :
      name => value if anytrue([for s in local.stepping : s.high_resolution])
    },
  )
}
