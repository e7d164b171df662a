"""``karrot render bridging-rules``: recording rules between Karrot's series and those of another tool."""

from karrot.render.templates import templates_dir

__all__ = ["TOOLS", "bridging_rules"]

TOOLS = ("burrow", "burrow-exporter", "kafka-exporter", "kafka-lag-exporter", "klag", "kminion")

_GROUP = "  - name: "


def bridging_rules(tool: str, *, as_karrot: bool = False) -> str:
    """A file for ``rule_files`` of Prometheus: Karrot's series under the tool's names, or the tool's under Karrot's.

    Every series that a rule makes has a label ``bridge``, and no rule reads one that has it: both directions and the
    rules of several tools can be loaded at once.
    """
    text = (templates_dir() / "prometheus" / "bridges" / f"{tool}.yaml").read_text(encoding="utf-8")
    head, theirs, ours = text.split(_GROUP)
    return f"{head}{_GROUP}{(ours if as_karrot else theirs).rstrip()}\n"
