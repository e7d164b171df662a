"""``karrot render recording-rules``: prints recording rules for Prometheus."""

import click


@click.command("recording-rules")
def recording_rules() -> None:
    """Print recording rules for Prometheus: one series per group, growth, share of time in OK, totals."""
    from karrot.render.prometheus_rules import recording_rules

    click.echo(recording_rules(), nl=False)
