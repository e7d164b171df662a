"""Puts a bill of materials into each wheel that hatchling builds, in ``.dist-info/sboms/`` (PEP 770).

A wheel contains only the project's own files, so its bill of materials lists these files with their SHA-256.
``karrot-burrow.cdx.json`` of ``make dist`` lists the packages of others that the image installs.
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BillOfMaterials(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling makes one for each build, and calls it before and after it writes the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the bill of materials and add it to the wheel. An editable wheel gets none: it contains no files."""
        if version == "editable":
            return
        files = {
            each.distribution_path.replace("\\", "/"): hashlib.sha256(Path(each.path).read_bytes()).hexdigest()
            for each in self.build_config.builder.recurse_included_files()
        }
        self._directory = Path(tempfile.mkdtemp())
        written = self._directory / "karrot-burrow.cdx.json"
        written.write_text(json.dumps(self._bill_of_materials(files), indent=1) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(written))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._directory)

    def _bill_of_materials(self, files: dict[str, str]) -> dict[str, Any]:
        core = self.metadata.core
        identity = f"pkg:pypi/{core.name}@{self.metadata.version}"
        return {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            # Without a serial number and a time, two builds give the same bytes.
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": identity,
                    "name": core.name,
                    "version": self.metadata.version,
                    "description": core.description,
                    "licenses": [{"license": {"id": core.license_expression}}],
                    "purl": identity,
                    "externalReferences": [{"type": "vcs", "url": core.urls["Repository"]}],
                }
            },
            "components": [
                {"type": "file", "bom-ref": name, "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
                for name, digest in sorted(files.items())
            ],
            "compositions": [{"aggregate": "complete", "assemblies": [identity]}],
        }
