"""The ``cloudwatch`` reporter: lag that autoscaling can trust, as metrics of Amazon CloudWatch."""
