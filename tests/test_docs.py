"""The documentation: it builds, its examples run, and the commands that it names exist."""

import ast
import doctest
import functools
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

import isvs
from eval.options import Options
from train.main import parse

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
# The mark of code that is run, all of a page in one namespace; what has none must be Python, no more.
RUN = "<!-- run -->\n"
FENCE = re.compile(rf"({RUN})?^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"python3? -m ((?:isvs|train|eval)[\w.]*)(.*)")
PARSERS = {
    "train.main": parse,
    "eval.main": lambda words: tyro.cli(Options, args=words),
}


@functools.cache
def help_of(command):
    spec = importlib.util.spec_from_file_location("command_help", DOCS / "command_help.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.help_of(command)


def blocks(page, language):
    """The blocks in a language: line of the code, whether it is to be run, code."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(3)), bool(match[1]), match[3])
        for match in FENCE.finditer(text)
        if match[2] == language
    ]


def runnable(page):
    return [(line, code) for line, run, code in blocks(page, "python") if run]


def named(page):
    return page.name


def commands(page):
    """Our commands in a page: those in shell blocks, which are whole, and those within sentences."""
    for _, _, code in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            if match := COMMAND.search(line):
                yield match[1], shlex.split(match[2], comments=True), True
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for span in re.findall(r"`([^`]+)`", prose):
        if match := COMMAND.match(" ".join(span.split())):
            yield match[1], shlex.split(match[2]), False


def check_command(program, words, whole):
    """Raises unless the program, its command and its options exist; for a whole one, also their values."""
    command = program
    for word in words[:2] if words[:1] == ["figure"] else words[:1]:
        if not word.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", help_of(command)), word
            command += f" {word}"
    for word in words:
        if re.match(r"--?[a-z]", word):
            option = re.escape(word.partition("=")[0])
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(command)), f"{command} {word}"
    if whole and command in PARSERS and "--config" not in words:
        PARSERS[command](words)


def test_site_builds_and_needs_no_network(tmp_path):
    command = ["sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    result = subprocess.run(
        [sys.executable, "-m", *command, str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for page in PAGES:
        if page.parent == DOCS:
            html = (tmp_path / page.with_suffix(".html").name).read_text(encoding="utf-8")
            assert not re.search(r'<(script|link|img)[^>]*(src|href)="(https?:)?//', html), (
                page.name
            )
    assert "--sat-start" in (tmp_path / "command_line.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", isvs.__all__)
def test_public_names_have_an_example_and_a_place(name):
    assert doctest.DocTestParser().get_examples(getattr(isvs, name).__doc__)
    assert re.search(rf"^\.\. auto\w+:: isvs\.{name}$", (DOCS / "api.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_blocks_are_python(page):
    for line, _, code in blocks(page, "python"):
        ast.parse("\n" * line + code, page.name)


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=named)
def test_marked_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    for line, code in runnable(page):
        exec(compile("\n" * line + code, str(page), "exec"), namespace)  # noqa: S102 (our own pages)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_exist(page):
    for command in commands(page):
        check_command(*command)


@pytest.mark.parametrize(
    "line",
    [
        "python -m eval.benchmark smoothing",
        "python -m eval.bench smothing",
        "python -m isvs smooth a.png --level 0.6",
        "python -m train.main --method blurred",
        "python -m eval.main --run runs/a --suite corruption",
        "python -m eval.main figure explained",
    ],
)
def test_commands_that_do_not_exist_are_noticed(line, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{line}\n```\n")
    ((program, words, whole),) = commands(page)
    with pytest.raises((AssertionError, ValueError, SystemExit)):
        check_command(program, words, whole)


@pytest.mark.parametrize("page", PAGES[:2], ids=named)
def test_links_outside_the_site(page):
    for link, place in re.findall(
        r"\]\((?!https?:)([^)#]+)(?:#([^)]+))?", page.read_text(encoding="utf-8")
    ):
        assert (page.parent / link).exists(), link
        if place:
            text = (page.parent / link).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings]
            assert place in slugs, f"{link}#{place}"
