"""Renders configuration for Burrow, Prometheus, Grafana and AWS from ``templates/``."""

from karrot.render.burrow_toml import burrow_config, burrow_template, webhook
from karrot.render.jinja_templates import runbooks_dir, shipped_templates, templates_dir

__all__ = ["burrow_config", "burrow_template", "runbooks_dir", "shipped_templates", "templates_dir", "webhook"]
