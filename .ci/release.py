"""A release: build wheel and sdist, look into them, install the wheel afresh and run the README.

What is found wrong ends it with one line. Run by `make release`, which leaves both in dist/. With
`--only-check` the two are built and looked into, but nothing is installed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH = "torch==2.13.0"  # installed first and by itself, as the README says
MOST = 12 * 2**20  # bytes
IN_SDIST = ("README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "Makefile", "tests/conftest.py",
            "docs/fix.md", "docs/story.ipynb", "examples/fix_chat.py", "mkdocs.yml")  # fmt: skip


def main() -> None:
    version = agreed_version()
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        # a copy of what git knows: nothing that lies about in the checkout gets in
        source = Path(folder) / "source"
        source.mkdir()
        kept = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
        for name in kept.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, source / name)
        run([sys.executable, "-m", "build", "--outdir", str(dist), str(source)])
        check_wheel(one(dist, "*.whl"), source / "tpatcher")
    check_sdist(one(dist, "*.tar.gz"))
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())])
    if "--only-check" not in sys.argv:
        run_readme(one(dist, "*.whl"))
    print(f"tpatcher {version} is ready in dist/; `twine upload dist/*` publishes it")


def agreed_version() -> str:
    """The version of the package, if the changelog and CITATION.cff say the same."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "tpatcher/__init__.py").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.M)
    assert version and newest and cited
    said = {version[1], newest[1], cited[1]}
    if len(said) > 1:
        sys.exit(f"package, CHANGELOG.md and CITATION.cff disagree on the version: {said}")
    return version[1]


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def check_wheel(wheel: Path, package: Path) -> None:
    """Every file of the package is in the wheel, and nothing else but its metadata."""
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"tpatcher/{p.relative_to(package)}" for p in package.rglob("*") if p.is_file()}
    inside = {name for name in names if ".dist-info/" not in name}
    if inside != wanted:
        sys.exit(f"{wheel.name}: missing {wanted - inside}, not expected {inside - wanted}")
    check_size(wheel)


def check_sdist(sdist: Path) -> None:
    """What a packager needs is in the sdist: tests, docs and how to run them."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in IN_SDIST if name not in names]
    if missing:
        sys.exit(f"{sdist.name}: missing {missing}")
    check_size(sdist)


def check_size(file: Path) -> None:
    size = file.stat().st_size
    print(f"{file.name}: {size / 2**20:.1f} MB")
    if size > MOST:
        sys.exit(f"{file.name} has {size / 2**20:.1f} MB; at most {MOST / 2**20:.0f} are allowed")


def run_readme(wheel: Path) -> None:
    """A stranger's path: an empty directory, a fresh venv, the README, an example."""
    with tempfile.TemporaryDirectory(prefix="tpatcher-stranger-") as folder:
        venv = Path(folder) / "venv"
        run([sys.executable, "-m", "venv", str(venv)])
        run([str(venv / "bin/pip"), "install", "--quiet", TORCH])
        run([str(venv / "bin/pip"), "install", "--quiet", f"{wheel}[serve]"])
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        env |= {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": f"{folder}/cache"}
        example = (ROOT / "examples" / "fix_bart_qa.py").read_text()
        for language, block in [*readme_blocks(), ("python", example)]:
            print(f"a stranger runs: {block.splitlines()[0]} …", flush=True)
            shell = ["bash", "-euo", "pipefail", "-c"]
            command = [*(["python", "-c"] if language == "python" else shell), block]
            # what a block leaves running, as the service, ends with it
            process = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True)
            code = process.wait(1200)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            if code:
                sys.exit(f"a {language} block ended with {code}:\n{block}")


def readme_blocks() -> list[tuple[str, str]]:
    """The Python and shell blocks of the README; what installs is done already."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", text, re.S | re.M)
    return [(kind, block) for kind, block in blocks if "pip install" not in block]


def run(command: list[str]) -> None:
    print(f"$ {' '.join(command)}", flush=True)
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
