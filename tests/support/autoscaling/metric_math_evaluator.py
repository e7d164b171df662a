"""Evaluates the part of CloudWatch's metric math that Karrot's recipes use: ``*``, ``/``, ``<``, FILL and IF.

Everything else is refused. The source is the CloudWatch User Guide, "Using math expressions with CloudWatch metrics".
The guide says that arithmetic reads a missing value as 0, and drops a point that would divide by zero. The guide does
not say whether a live alarm does the same, so the evaluator supports two readings: ``Gaps.ZERO`` and ``Gaps.DROPPED``.
With both, an operation has no result if none of its metrics has a value.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from support.autoscaling.metric_statistics import MetricIdentity, MetricQuery, RecordedMetrics, Values

_Operand = float | Values


class UnsupportedExpressionError(ValueError):
    """The text is not metric math, or uses a part of metric math that this model does not have."""


class Gaps(StrEnum):
    """How an operation reads a value that is missing from one of its metrics."""

    ZERO = "zero"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    text: str
    tree: ast.expr = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> "Expression":
        """Raises `UnsupportedExpressionError` if the expression cannot be evaluated."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise UnsupportedExpressionError(f"not metric math that is modelled: {text}") from error
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and type(node.value) not in (int, float):
                raise UnsupportedExpressionError(f"a string is not modelled: {text}")
            if isinstance(node, ast.Call) and _function_of(node) not in _FUNCTIONS:
                raise UnsupportedExpressionError(f"{ast.unparse(node.func)} is not modelled: {text}")
            if not isinstance(node, _KNOWN):
                raise UnsupportedExpressionError(f"{type(node).__name__} is not modelled: {text}")
        expression = cls(text, tree)
        expression.values({name: [1.0] for name in expression.names}, 1, Gaps.ZERO)  # raises for wrong arguments
        return expression

    @property
    def names(self) -> frozenset[str]:
        """The ids that the expression refers to."""
        return frozenset(each.id for each in ast.walk(self.tree) if isinstance(each, ast.Name)) - _WORDS

    def values(self, series: Mapping[str, Values], count: int, gaps: Gaps) -> Values:
        """One value per period. ``series`` has ``count`` values for each name."""
        result = _Evaluation(series, count, gaps).of(self.tree)
        return result if isinstance(result, list) else [result] * count


@dataclass(frozen=True, slots=True)
class MathQuery:
    """Metrics and expressions by id, and the id of the result. Expressions can use each other, but not in a circle."""

    parts: Mapping[str, MetricQuery | Expression]
    returned: str
    gaps: Gaps = Gaps.ZERO

    @property
    def metrics(self) -> frozenset[MetricIdentity]:
        """All metrics in the query."""
        return frozenset(part.metric for part in self.parts.values() if isinstance(part, MetricQuery))

    def values(self, reader: RecordedMetrics, *, end_s: float, period_s: int, count: int) -> Values:
        """The values of the returned id."""

        def of(name: str) -> Values:
            part = self.parts[name]
            if isinstance(part, MetricQuery):
                return part.values(reader, end_s=end_s, period_s=period_s, count=count)
            return part.values({each: of(each) for each in part.names}, count, self.gaps)

        return of(self.returned)


WatchedQuery = MetricQuery | MathQuery
"""The query of an alarm or a target tracking policy: one metric, or metric math over several metrics."""


def _function_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    series: Mapping[str, Values]
    count: int
    gaps: Gaps

    def of(self, node: ast.expr) -> _Operand:
        match node:
            case ast.Constant(value=value):
                return float(cast("float", value))
            case ast.Name(id=name):
                return self.series[name]
            case ast.BinOp(left=left, op=sign, right=right) | ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self.combine(_BETWEEN_TWO[type(sign)], self.of(left), self.of(right))
            case ast.Call(args=arguments):
                return self.call(_function_of(node), arguments)
            case _:
                raise UnsupportedExpressionError(f"not modelled: {ast.unparse(node)}")

    def call(self, name: str, arguments: Sequence[ast.expr]) -> _Operand:
        match name, arguments:
            case "FILL", [series, filler]:
                return self.fill(self.broadcast(self.of(series)), filler)
            case "IF", [condition, yes, no]:
                chosen = zip(*(self.broadcast(self.of(each)) for each in (condition, yes, no)), strict=True)
                return [None if met is None else self.chosen(here) if met else other for met, here, other in chosen]
            case _:
                raise UnsupportedExpressionError(f"{name} takes other arguments")

    def combine(self, function: Callable[[float, float], float], left: _Operand, right: _Operand) -> _Operand:
        """Apply a function to each period's values. Numbers alone give a number, because they have no periods."""
        if not isinstance(left, list) and not isinstance(right, list):
            value = _or_nothing(function, left, right)
            return [None] * self.count if value is None else value
        series = [each for each in (left, right) if isinstance(each, list)]
        pairs = zip(self.broadcast(left), self.broadcast(right), strict=True)
        return [
            None if self._is_gap([each[at] for each in series]) else _or_nothing(function, one or 0.0, other or 0.0)
            for at, (one, other) in enumerate(pairs)
        ]

    def _is_gap(self, values: Values) -> bool:
        missing = [value is None for value in values]
        return any(missing) if self.gaps is Gaps.DROPPED else all(missing)

    def fill(self, values: Values, filler: ast.expr) -> Values:
        if isinstance(filler, ast.Name) and filler.id == "REPEAT":
            return _repeated(values)
        instead = self.broadcast(self.of(filler))
        return [other if value is None else value for value, other in zip(values, instead, strict=True)]

    def chosen(self, value: float | None) -> float | None:
        """The second argument of IF. The guide reads a missing value as 0 here, but drops it in the third argument."""
        return 0.0 if value is None and self.gaps is Gaps.ZERO else value

    def broadcast(self, operand: _Operand) -> Values:
        return operand if isinstance(operand, list) else [operand] * self.count


def _repeated(values: Values) -> Values:
    """Fill each gap with the previous value, if the alarm fetched one."""
    filled: Values = []
    for value in values:
        filled.append(filled[-1] if value is None and filled else value)
    return filled


def _or_nothing(function: Callable[[float, float], float], left: float, right: float) -> float | None:
    try:
        return float(function(left, right))
    except ZeroDivisionError:
        return None


_FUNCTIONS = frozenset({"FILL", "IF"})
_WORDS = _FUNCTIONS | {"REPEAT"}
_KNOWN = (ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.Mult, ast.Div, ast.Compare, ast.Lt, ast.Call)
_BETWEEN_TWO: dict[type[ast.operator | ast.cmpop], Callable[[float, float], float]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: operator.lt,
}
