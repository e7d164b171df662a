"""Prints how far the lag in seconds is from the true age, next to two other exporters: the table of docs/signals.md.

PYTHONPATH=tests python benchmarks/lag_age_error.py [--seeds 3]

For each range of true ages: Karrot's mean error relative to the truth, then the mean errors of kafka-lag-exporter and
klag. In brackets: the share of verdicts with a lower bound only, which the errors leave out.
"""

import argparse

from support.burrow.lag_age_scenarios import ROWS, BinErrors, errors


def cell(found: BinErrors | None) -> str:
    """Return one cell of the table."""
    if found is None:
        return "-"
    shares = [found.error, *found.others.values()]
    text = " / ".join("-" if share is None else f"{share:.1%}" for share in shares)
    return f"{text} ({found.at_least:.0%})" if found.at_least else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print("| what happens | 60 to 120 s | 120 to 600 s | over 600 s |")
    print("|---|--:|--:|--:|")
    for name, scenarios in ROWS.items():
        print(f"| {name} | " + " | ".join(map(cell, errors(scenarios, seeds=seeds))) + " |", flush=True)


if __name__ == "__main__":
    main()
