"""Writes the generated files of the chart: `python -m deploy.chart`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.chart.dashboard import dashboard_text
from deploy.chart.documents import CHART, values_yaml, with_values
from deploy.chart.schema import schema_text, secrets_text


def generated() -> Mapping[Path, str]:
    """Return the text of each generated file of the chart."""
    readme = CHART / "README.md"
    return {
        CHART / "values.yaml": values_yaml(),
        CHART / "values.schema.json": schema_text(),
        CHART / "files" / "dashboard.json": dashboard_text(),
        CHART / "files" / "secrets.json": secrets_text(),
        readme: with_values(readme.read_text(encoding="utf-8")),
    }


def main() -> None:
    """Write the files whose text is out of date."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path}: updated")  # noqa: T201  # the output of the command


if __name__ == "__main__":
    main()
