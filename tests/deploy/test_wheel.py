"""The built wheel, installed with the packages of a plain `pip install turnwise` and no others."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from tempfile import gettempdir

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from turnwise.models.cores import multiplies_bytes

ROOT = Path(__file__).parents[2]
SOURCES = ["LICENSE", "README.md", "models", "pyproject.toml", "service"]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Without PYTHONPATH, which would show the checkout to the installed package.
    env = {"PATH": os.environ["PATH"], "HOME": gettempdir(), "COLUMNS": "200"}
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def succeed(*command: object, cwd: Path | None = None) -> str:
    ended = run(*command, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def closure(requirements: list[str]) -> set[str]:
    """The names of the installed distributions that requirements bring, directly or not."""
    found: set[str] = set()
    waiting = [Requirement(line) for line in requirements]
    for requirement in waiting:  # grows during the loop
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += map(Requirement, distribution(name).requires or ())
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("sources")
    out = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        (copy / name).symlink_to(ROOT / name)
    package = copy / "src" / "turnwise"
    package.mkdir(parents=True)
    for path in (ROOT / "src" / "turnwise").glob("*"):
        if path.is_symlink():
            (package / path.name).symlink_to(path.readlink())
        elif path.is_file():
            (package / path.name).write_bytes(path.read_bytes())
    stored = "--config-settings=--build-option=--compression=stored"  # compressing takes seconds
    build = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", stored)
    succeed(*build, "-w", out, copy)
    (built,) = out.iterdir()
    return built


Environment = Callable[..., Path]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """From an extra to the executables of an environment with what it brings, and nothing else."""

    def made(extra: str = "") -> Path:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, with_pip=False)
        python = folder / "bin" / "python"
        site = Path(succeed(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = {**project["optional-dependencies"], "": []}
        for name in closure(project["dependencies"] + extras[extra]):
            files = distribution(name).files or []
            for entry in {file.parts[0] for file in files} - {"..", "__pycache__"}:
                if not (site / entry).exists():  # packages may share one, such as opentelemetry
                    (site / entry).symlink_to(str(distribution(name).locate_file(entry)))
        install = (*PIP, "--python", python, "install", "--no-deps", "--no-index", "--no-compile")
        succeed(*install, wheel)
        return folder / "bin"

    return made


@pytest.fixture(scope="module")
def plain(environment: Environment) -> Path:
    return environment()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A chatbot's backend, which has `models` and `service` of its own."""
    for name in ("models", "service"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True\n")
    return tmp_path


def test_the_wheel_holds_the_package_turnwise_with_its_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"turnwise"}
    left_out = {"__pycache__", ".pyc"}
    expected = {
        f"turnwise/{path.relative_to(ROOT)}"
        for folder in ("models", "service")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not any(part in str(path) for part in left_out)
    }
    assert {name for name in names if "dist-info" not in name} == expected | {
        "turnwise/__init__.py",
        "turnwise/py.typed",
    }


def test_every_module_of_the_client_side_imports_without_an_extra(
    plain: Path, tmp_path: Path
) -> None:
    code = (
        "import importlib, pkgutil\n"
        "from turnwise.service import client, wire\n"
        "from turnwise.service.cli import chat, connected, key, pool, progress, terminal\n"
        "for room in (client, wire):\n"
        "    for module in pkgutil.iter_modules(room.__path__, room.__name__ + '.'):\n"
        "        importlib.import_module(module.name)"
    )
    succeed(plain / "python", "-c", code, cwd=tmp_path)


def test_the_commands_of_the_client_work_without_an_extra(plain: Path, tmp_path: Path) -> None:
    assert "serve" in succeed(plain / "turnwise", "--help", cwd=tmp_path)
    assert "TURNWISE_API_KEYS" in succeed(plain / "turnwise", "key", "ada", cwd=tmp_path)
    file = tmp_path / "replies.jsonl"
    file.write_text('{"text": "Hello."}\n')
    load = ["pool", "load", file, "--pool", "p", "--url", "http://127.0.0.1:1"]
    ended = run(plain / "turnwise", *load, cwd=tmp_path)
    assert ended.returncode == 2
    assert "start a service with `turnwise serve`" in ended.stderr


def test_a_command_names_the_extra_that_it_needs(plain: Path, tmp_path: Path) -> None:
    extras = {
        "serve": "server",
        "doctor": "server",
        "pool snapshot p folder": "server",
        "pool restore folder": "server",
        "train config.toml": "train",
        "evaluate next-utterance --data file": "train",
        "evaluate build-ranking --data file --out out.jsonl": "train",
    }
    code = (
        "import sys\n"
        "from turnwise.service.cli.main import main\n"
        "for command in sys.argv[1:]:\n"
        "    sys.argv = ['turnwise', *command.split()]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        print(end.code)"
    )
    ended = run(plain / "python", "-c", code, *extras, cwd=tmp_path)
    assert ended.stdout.split() == ["2"] * len(extras), ended.stderr
    for (command, extra), line in zip(extras.items(), ended.stderr.splitlines(), strict=True):
        assert line.startswith("error: "), command
        assert line.endswith(f"pip install 'turnwise[{extra}]'"), command


def test_a_service_runs_a_model_with_a_graph_without_torch(
    environment: Environment, tmp_path: Path
) -> None:
    code = (
        "import sys, turnwise.service.app.server, turnwise.service.cli.doctor.examine\n"
        "print('onnxruntime' in sys.modules)\n"  # which a replica with a remote encoder lacks
        "from turnwise.service.app.loading import load_encoder\n"
        "from turnwise.service.settings import Settings\n"
        "settings = Settings()\n"
        "print(load_encoder(settings, settings.model).runtime, 'torch' in sys.modules)\n"
        "load_encoder(settings, 'hub/model')"
    )
    ended = run(environment("replica") / "python", "-c", code, cwd=tmp_path)
    precision = "8 bits" if multiplies_bytes() else "float32"
    assert ended.stdout == f"False\nonnxruntime {precision} on cpu False\n", ended.stderr
    assert ended.stderr.rstrip().endswith("pip install 'turnwise[encoder]'")


@pytest.mark.nightly
def test_a_project_that_uses_the_client_is_typed(plain: Path, project: Path) -> None:
    (project / "bot.py").write_text(
        "from turnwise import Client, NotFoundError\n\n\n"
        "def reply(said: str) -> str:\n"
        "    with Client('http://127.0.0.1:8000') as client, client.session() as session:\n"
        "        try:\n"
        "            return session.turn('user', said).candidates[0].text\n"
        "        except NotFoundError as error:\n"
        "            return error.detail\n"
    )
    (project / "wrong.py").write_text(
        "from turnwise import Client, Nothing\n\n"
        "number: int = Client('http://127.0.0.1:8000').session().id\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", plain / "python"]
    ended = run(*mypy, "bot.py", "wrong.py", cwd=project)
    assert [line.rpartition("[")[2] for line in ended.stdout.splitlines()[:-1]] == [
        "attr-defined]",
        "assignment]",
    ], ended.stdout
