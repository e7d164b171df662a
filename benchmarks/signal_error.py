"""Prints how far the signals are from the true values: the full table; docs/signals.md shows a part of it.

Messages are written at random moments; consumers fall behind at 50, 80 and 95 % of that rate and one catches up at
150 %; commit intervals vary by 10 %; Burrow has its defaults; lags of 20 s and more count.

PYTHONPATH=tests python benchmarks/signal_error.py
"""

from support.burrow.lagging_consumer import SignalErrors, mean_signal_errors

RATES = (0.5, 5.0, 50.0)
COMMIT_SECONDS = (0.5, 1, 2, 5, 10, 30, 60)


def row(rate: float, commit_seconds: float, errors: SignalErrors) -> str:
    """Return one line of the table."""
    shares = (errors.produce_rate, errors.consume_rate, errors.lag_seconds, errors.known)
    return f"| {rate:g} | {commit_seconds:g} | " + " | ".join(f"{share:.0%}" for share in shares) + " |"


if __name__ == "__main__":
    print("| messages/s | commit every, s | produce rate | consume rate | lag seconds | lag seconds known |")
    print("|--:|--:|--:|--:|--:|--:|")
    for rate in RATES:
        for commit_seconds in COMMIT_SECONDS:
            print(row(rate, commit_seconds, mean_signal_errors(rate, commit_seconds)))
