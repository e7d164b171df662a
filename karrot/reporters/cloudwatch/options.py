"""Names the settings of the ``cloudwatch`` reporter, which `karrot.settings.options` declares."""

from karrot.settings import options

Options = options.CloudWatch
GroupMetricName = options.GroupMetricName
Layout = options.Layout
