"""A model of CloudWatch alarms and of Auto Scaling policies, as AWS documents them. It is a model, not AWS.

Pure: no I/O, no clock, nothing of the rest of Karrot. `from_cloudformation` reads the stack to run from a template,
`Stack.tick` runs it; `load` and `simulation` put it in front of a recorded lag.
"""

from karrot.autoscaling.alarms import Alarm, AlarmWatch, Comparison, Evaluation
from karrot.autoscaling.expressions import Expression, Gaps, UnsupportedExpressionError
from karrot.autoscaling.intrinsics import TemplateError
from karrot.autoscaling.missing import State, Treatment, judge
from karrot.autoscaling.policies import ScaleIn, StepPolicy, TrackingPolicy
from karrot.autoscaling.queries import MathQuery, MetricQuery
from karrot.autoscaling.series import Metric, MetricReader, Point, RecordedMetrics
from karrot.autoscaling.stack import Activity, NotScaled, Stack
from karrot.autoscaling.steps import Adjustment, Step
from karrot.autoscaling.template import Limits, from_cloudformation

__all__ = [
    "Activity",
    "Adjustment",
    "Alarm",
    "AlarmWatch",
    "Comparison",
    "Evaluation",
    "Expression",
    "Gaps",
    "Limits",
    "MathQuery",
    "Metric",
    "MetricQuery",
    "MetricReader",
    "NotScaled",
    "Point",
    "RecordedMetrics",
    "ScaleIn",
    "Stack",
    "State",
    "Step",
    "StepPolicy",
    "TemplateError",
    "TrackingPolicy",
    "Treatment",
    "UnsupportedExpressionError",
    "from_cloudformation",
    "judge",
]
