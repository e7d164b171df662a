"""A template writes any value so that every format reads it back unchanged."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from karrot.render import jinja_templates

ROOT = Path(__file__).resolve().parents[2]

HOSTILE = [
    "${a}",
    "%{a}",
    "$${a}",
    "%%{a}",
    pytest.param('"', id="a double quote"),
    pytest.param("\\", id="a backslash"),
    pytest.param("\\u0041", id="an escape of Unicode"),
    pytest.param("\\b", id="an escape of a backspace"),
    pytest.param("\\\\f\b\f", id="backslashes, a backspace and a form feed"),
    pytest.param("\n", id="a line feed"),
    pytest.param("\0", id="NUL"),
    pytest.param("\x7f", id="DEL"),
    pytest.param("\x85", id="a next line"),
    pytest.param("\u2028", id="a line separator"),
    pytest.param("\ufeff", id="a byte order mark"),
    pytest.param("\uffff", id="a noncharacter"),
]


@given(st.text())
def test_any_text_is_read_back_from_yaml(text: str) -> None:
    assert yaml.safe_load(f"a: {jinja_templates.yaml(text)}") == {"a": text}


@given(st.text())
def test_any_text_is_read_back_from_toml(text: str) -> None:
    assert tomllib.loads(f"a = {jinja_templates.toml(text)}") == {"a": text}


@pytest.mark.parametrize("text", HOSTILE)
def test_special_characters_of_a_format_are_escaped_in_a_value(text: str) -> None:
    assert yaml.safe_load(jinja_templates.yaml(text)) == text
    assert tomllib.loads(f"a = {jinja_templates.toml(text)}") == {"a": text}


@given(st.one_of(st.integers(-(10**15) + 1, 10**15 - 1), st.sampled_from([0.5, 1e12, 6000.25, 1e-6])))
def test_a_number_is_written_without_quotes(number: float) -> None:
    assert json.loads(jinja_templates.yaml(number)) == number


def test_templates_are_read_from_a_zip_file_as_a_spark_cluster_has_it(tmp_path: Path) -> None:
    archive = tmp_path / "karrot-burrow.zip"
    with ZipFile(archive, "w") as packed:
        for folder, name in ((ROOT / "karrot", "karrot"), (ROOT / "templates", "karrot/templates")):
            for file in (path for path in folder.rglob("*") if path.suffix in {".py", ".html", ".css"}):
                packed.write(file, f"{name}/{file.relative_to(folder)}")
    code = "from karrot.render import shipped_templates as t; print(len(t('report', 'web').load_func('report.html')))"
    printed = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(archive)}, check=True, capture_output=True, text=True
    )
    assert int(printed.stdout) == len((ROOT / "templates" / "report" / "report.html").read_text(encoding="utf-8"))
