"""A model of CloudWatch alarms and of Auto Scaling policies, as AWS documents them. It is a model, not AWS.

Pure: no I/O, no clock, nothing of the rest of Karrot. `from_cloudformation` reads the stack to run from a template,
`Stack.tick` runs it; `load` and `simulation` put it in front of a recorded lag.
"""

from karrot.autoscaling.alarms import Alarm, AlarmWatch, Comparison, Evaluation
from karrot.autoscaling.arrival_rate import LagSample, Load, loaded
from karrot.autoscaling.cloudformation import Limits, from_cloudformation
from karrot.autoscaling.consumers import Consumers
from karrot.autoscaling.intrinsics import TemplateError
from karrot.autoscaling.metric_math import Expression, Gaps, UnsupportedExpressionError
from karrot.autoscaling.metric_queries import MathQuery, MetricQuery
from karrot.autoscaling.metric_series import MetricIdentity, MetricPoint, MetricReader, RecordedMetrics
from karrot.autoscaling.missing_data import AlarmState, Treatment, judge
from karrot.autoscaling.policies import ScaleIn, StepPolicy, TrackingPolicy
from karrot.autoscaling.run_chart import RunChart, chart_of
from karrot.autoscaling.run_summary import Moment, RunSummary
from karrot.autoscaling.scalable_target import Activity, NotScaled, Stack
from karrot.autoscaling.simulation import Publishing, Run, Signal, signal_of, simulate
from karrot.autoscaling.steps import Adjustment, StepAdjustment

__all__ = [
    "Activity",
    "Adjustment",
    "Alarm",
    "AlarmState",
    "AlarmWatch",
    "Comparison",
    "Consumers",
    "Evaluation",
    "Expression",
    "Gaps",
    "LagSample",
    "Limits",
    "Load",
    "MathQuery",
    "MetricIdentity",
    "MetricPoint",
    "MetricQuery",
    "MetricReader",
    "Moment",
    "NotScaled",
    "Publishing",
    "RecordedMetrics",
    "Run",
    "RunChart",
    "RunSummary",
    "ScaleIn",
    "Signal",
    "Stack",
    "StepAdjustment",
    "StepPolicy",
    "TemplateError",
    "TrackingPolicy",
    "Treatment",
    "UnsupportedExpressionError",
    "chart_of",
    "from_cloudformation",
    "judge",
    "loaded",
    "signal_of",
    "simulate",
]
