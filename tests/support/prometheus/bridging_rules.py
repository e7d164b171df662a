"""Reads the bridging rules of `examples/bridging-rules`."""

from pathlib import Path

__all__ = ["BRIDGED_TOOLS", "bridging_rules"]

_FOLDER = Path(__file__).resolve().parents[3] / "examples" / "bridging-rules"

BRIDGED_TOOLS = sorted(path.stem.removeprefix("karrot-as-") for path in _FOLDER.glob("karrot-as-*.yaml"))
"""The tools whose series the rules know."""


def bridging_rules(tool: str, *, as_karrot: bool = False) -> str:
    """Return the rules that give Karrot's series the tool's names, or the reverse."""
    name = f"{tool}-as-karrot" if as_karrot else f"karrot-as-{tool}"
    return (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
