"""The rendered templates and the example pass CloudFormation's own rules in cfn-lint: errors, warnings and advice."""

import subprocess
import sys
from pathlib import Path

from karrot.render.ecs_autoscaling import autoscaling
from support.autoscaling.scaling_recipes import RECIPES

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ecs" / "karrot.yaml"


def test_every_template_is_valid(tmp_path: Path) -> None:
    texts = {name: autoscaling(asked) for name, asked in RECIPES.items()}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    # One process checks all files, because most of its time is its start. -c I: advice counts too.
    command = [
        sys.executable,
        "-c",
        "from cfnlint.runner import main; exit(main())",
        "-c",
        "I",
        "-r",
        "eu-west-1",
        "--",
        str(EXAMPLE),
        *map(str, sorted(tmp_path.iterdir())),
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (told.returncode, told.stdout.strip(), told.stderr) == (0, "", "")
