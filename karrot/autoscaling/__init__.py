"""Models CloudWatch alarms and Auto Scaling policies as AWS documents them, for `karrot simulate` and for tests.

No I/O, no clock, nothing of the rest of Karrot. `Stack.tick` runs policies and alarms; `loaded` and `simulate` run a
stack on a recorded lag. `karrot.render.policies_and_alarms` makes the stack of a recipe.
"""

from karrot.autoscaling.alarms import Alarm, AlarmState, AlarmWatch, Comparison, Evaluation, Treatment, judge
from karrot.autoscaling.arrival_rate import LagSample, Load, loaded
from karrot.autoscaling.metric_math import Expression, Gaps, MathQuery, UnsupportedExpressionError
from karrot.autoscaling.metric_series import MetricIdentity, MetricPoint, MetricQuery, MetricReader, RecordedMetrics
from karrot.autoscaling.policies import Adjustment, ScaleIn, StepAdjustment, StepPolicy, TrackingPolicy
from karrot.autoscaling.run_chart import RunChart, chart_of
from karrot.autoscaling.run_summary import Moment, RunSummary
from karrot.autoscaling.scalable_target import Activity, NotScaled, Stack
from karrot.autoscaling.simulation import Consumers, Publishing, Run, Signal, signal_of, simulate

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
    "TrackingPolicy",
    "Treatment",
    "UnsupportedExpressionError",
    "chart_of",
    "judge",
    "loaded",
    "signal_of",
    "simulate",
]
