"""Judges groups by Burrow's rules (`burrow_judge.BurrowJudge`), and sends the verdicts (`verdict_destinations`)."""
