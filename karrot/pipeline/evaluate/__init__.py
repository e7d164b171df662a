"""Judges consumer groups by Burrow's rules (`burrow_judge.BurrowJudge`), and sends verdicts (`verdict_destinations`)."""
