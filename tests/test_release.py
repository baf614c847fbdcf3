"""What a release and a container are made of agrees with the package."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.helpers import serve_options
from tpatcher import __version__

ROOT = Path(__file__).parents[1]


def script(name: str) -> ModuleType:
    """A script of .ci/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_changelog_and_citation_name_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = script("release")
    assert release.agreed_version() == __version__
    (tmp_path / "tpatcher").mkdir()
    for name in ("tpatcher/__init__.py", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 9.9.9 (2026-01-01)\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="disagree on the version"):
        release.agreed_version()


def test_a_wheel_that_lacks_a_file_is_refused(tmp_path: Path) -> None:
    release = script("release")
    package = tmp_path / "tpatcher"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "page.html").write_text("")
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tpatcher/__init__.py", "")
    with pytest.raises(SystemExit, match=r"missing .*page\.html"):
        release.check_wheel(wheel, package)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tpatcher/page.html", "")
        archive.writestr("tpatcher-1.dist-info/METADATA", "")
    release.check_wheel(wheel, package)


def test_every_file_of_the_package_is_one_that_a_wheel_takes_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["tpatcher"]
    taken = {file for pattern in patterns for file in (ROOT / "tpatcher").glob(pattern)}
    kept = ["git", "ls-files", "-z", "tpatcher"]
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    names = subprocess.run(kept, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in names.split("\0") if name and not name.endswith(".py")]
    assert [f for f in files if f.is_file() and f not in taken] == []


def test_the_readme_is_run_by_a_release() -> None:
    blocks = [block for _, block in script("release").readme_blocks()]
    assert any("tp.load" in b for b in blocks) and any("tpatcher serve" in b for b in blocks)


def test_the_citation_is_whole() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version"} <= cited.keys()
    assert len(cited["preferred-citation"]["authors"]) == 6


def test_workflows_call_commands_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text())["jobs"]
        asked = {t for job in jobs.values() for t in job["strategy"]["matrix"]["target"]}
        assert asked and asked <= targets
    for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(file.read_text())


@pytest.mark.skipif(
    not shutil.which("hadolint", path=str(Path(sys.executable).parent)),
    reason="hadolint is not installed",
)
def test_the_dockerfile_has_no_known_flaw() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([str(hadolint), str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_container_sets_what_serve_understands_and_is_not_root() -> None:
    known = {f"TPATCHER_{option.name.upper()}" for option in serve_options()}
    steps = script("container").steps((ROOT / "Dockerfile").read_text())
    given = {
        n for name, rest in steps if name == "ENV" for n in re.findall(r"(TPATCHER_\w+)=", rest)
    }
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    replicas: list[Any] = [
        one for one in services.values() if "TPATCHER_STORE" in one["environment"]
    ]
    assert given | {n for one in replicas for n in one["environment"]} <= known
    assert [rest for name, rest in steps if name == "USER"] == ["10001"]
    assert "HEALTHCHECK" in dict(steps) and services["database"]["healthcheck"]
    assert all(port.startswith("127.0.0.1:") for one in replicas for port in one.get("ports", ()))
