import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes tells of the machine's load, not of what is tested.
settings.register_profile("nixwulf", deadline=None)
settings.load_profile("nixwulf")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """In CI a lab test that is skipped has failed: there, every machine can do all but a GPU's."""
    report = yield
    in_lab = "lab" in Path(item.path).relative_to(item.config.rootpath).parts
    expected = in_lab and not item.get_closest_marker("gpu")
    if os.environ.get("CI") == "true" and expected and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"A lab test was skipped in CI: {report.longrepr}"
    return report
