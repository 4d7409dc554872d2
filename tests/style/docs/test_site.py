"""The documentation: its code runs, its commands exist, its links lead somewhere, and what is made from the code is whole.

Examples that need a trained run, a checkout of their own or another family have tests of their own: ELSEWHERE.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from docs._generate import cli, columns, pages, pictures, record

from benchmarks import command as benchmarks
from ketscale.analysis.columns import TABLES
from ketscale.cli import _parser
from ketscale.grid import Run
from tests import ROOT
from tests.style.docs.pages import COMMANDS, DOCS, NOTEBOOKS, PAGES, blocks, named, of

# Pages whose Python is run by another test, which names them.
ELSEWHERE = {
    "../README.md": "tests/style/docs/test_docs.py",
    "library.md": "tests/style/docs/test_docs.py",
    "adding.md": "tests/nightly/contract/test_added.py",
    "python.md": "tests/style/docs/test_docs.py",
    "tutorial.md": "tests/nightly/docs/test_tutorial.py",
}
# Commands of others, which are not checked further.
OTHERS = {"git", "source", "pip", "rm", "$EDITOR", "chromium", "apt-get"}
MADE = pages.made()
TIMES = re.compile(r"[0-9.,]+ (ms|s|µs)\b")


# ---------------------------------------------------------------- code


def with_python() -> list[Path]:
    return [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize(
    "page",
    [page for page in with_python() if page.name not in {Path(other).name for other in ELSEWHERE}],
    ids=named,
)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    every = list(blocks(page))
    for block, after in zip(every, [*every[1:], None], strict=True):
        if block.language == "python" and block.reason is None:
            exec(compile(block.text, named(page), "exec"), namespace)
            # What it prints is as the page shows it, but for times.
            printed = TIMES.sub("", capsys.readouterr().out).split()
            if after is not None and after.language == "text":
                assert printed == TIMES.sub("", after.text).split()


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_the_python_of_the_other_pages_has_a_test(page: str, test: str) -> None:
    assert (DOCS / page).resolve() in with_python()
    assert Path(page).name in (ROOT / test).read_text()


def test_no_block_is_left_out_silently() -> None:
    assert not [(page, b.reason) for page in PAGES for b in blocks(page) if b.reason is not None]


def test_every_block_has_a_language() -> None:
    options = {
        "python",
        "yaml",
        "sh",
        "text",
        "pycon",
        "{toctree}",
        "{literalinclude}",
        "{code-cell}",
    }
    for page in PAGES:
        assert {block.language for block in blocks(page)} <= options, named(page)


def test_every_block_of_yaml_is_yaml() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "yaml":
                assert yaml.safe_load(block.text), named(page)


@pytest.mark.parametrize("page", NOTEBOOKS, ids=named)
def test_a_notebook_is_one_for_jupytext_and_its_cells_are_python(page: Path) -> None:
    head = yaml.safe_load(page.read_text().split("---\n")[1])
    assert head["jupytext"]["text_representation"]["format_name"] == "myst"
    cells = [block.text for block in blocks(page) if block.language == "{code-cell}"]
    assert len(cells) >= 5
    for cell in cells:
        compile(cell, named(page), "exec")


# ---------------------------------------------------------------- commands


def test_every_command_is_of_a_kind_that_is_checked() -> None:
    programs = {"ketscale", "snakemake", "make", "python", "check", "cd"}
    for command, page in COMMANDS.items():
        program = re.sub(r"^(\S+=\S+ )+", "", command).split()[0]
        assert Path(program).name in programs | OTHERS, f"{page}: {command}"


@pytest.mark.parametrize("arguments", of("ketscale"))
def test_ketscale_accepts_what_is_shown(arguments: str) -> None:
    options = _parser().parse_args(shlex.split(arguments))
    assert options.command
    if "arguments" in options:
        assert benchmarks.parser().parse_args(options.arguments)


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    variables = {word for text in of("make") for word in text.split() if "=" not in word}
    inline = set(re.findall(r"`make ([a-z-]+)", "".join(page.read_text() for page in PAGES)))
    assert variables | inline <= targets
    assert {"docs", "setup", "test"} <= variables | inline


def test_every_module_that_is_named_exists() -> None:
    of_others = {"pytest", "build", "twine"}
    for arguments in of("python"):
        words = arguments.split()
        modules = [word for flag, word in pairwise(words) if flag == "-m" and word not in of_others]
        files = [word for word in words if word.startswith("tests/")]
        assert files or modules or of_others & set(words)
        assert all((ROOT / file).exists() for file in files), arguments
        assert all(find_spec(module) for module in modules), arguments


@pytest.mark.parametrize("arguments", of("snakemake"))
def test_snakemake_accepts_what_is_shown(arguments: str) -> None:
    from snakemake.cli import get_argument_parser

    # It reads the profile that is named, too.
    options = get_argument_parser().parse_args(
        ["--cores", "1", *(w for w in shlex.split(arguments) if "CHECKOUT" not in w)]
    )
    written = {"moons.yaml"}  # by the tutorial
    for file in options.configfile or ():
        assert Path(file).name in written or (ROOT / file).exists(), file
    for profile in re.findall(r"--profile (\S+)", arguments):
        assert (ROOT / profile / "profile.yaml").exists()
    for target in options.targets:
        if target.endswith("metrics.json") and "..." not in target:
            assert Run.parse(target)
        else:
            assert "..." in target or target in {"report", "runs", "figures", "all"}


# ---------------------------------------------------------------- links


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as forges and MyST make them."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    result: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", bare, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        result.add(re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return result


@pytest.mark.parametrize("page", [*PAGES, ROOT / "config" / "README.md"], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    bare = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"""(?:\]\(|(?:src|href)=")(?!http)([^)"\s]+)[)"]""", bare):
        file, _, anchor = target.partition("#")
        result = (page.parent / file).resolve() if file else page
        assert result.exists(), target
        assert result.is_relative_to(ROOT), target
        if anchor:
            assert anchor in slugs(result.read_text()), target


def test_pages_that_are_named_elsewhere_exist() -> None:
    """In errors, docstrings, configs and scripts, with their anchors."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    others = [ROOT / name for name in listed.stdout.split("\0") if name and not name.endswith(".md")]
    result = {
        target
        for file in others
        if file.is_file() and file.suffix in {".py", ".yaml", ".smk", ".toml", ".sh", ".j2", ""}
        for target in re.findall(r"\bdocs/[\w/.-]+\.md(?:#[\w-]+)?", file.read_text())
    }
    assert len(result) > 5
    for target in result:
        file, _, anchor = target.partition("#")
        assert (ROOT / file).exists(), target
        assert not anchor or anchor in slugs((ROOT / file).read_text()), target


def test_every_page_but_the_archive_is_in_the_contents() -> None:
    listed = {"index"}
    for index in (DOCS / "index.md", DOCS / "measurements" / "index.md"):
        for contents in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(), re.DOTALL):
            # `gpu**` is gpu.md and the pages of `make gpu-docs`.
            names = [line.rstrip("*") for line in contents.splitlines() if line and not line.startswith(":")]
            listed |= {str((index.parent / name).relative_to(DOCS)) for name in names}
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES[1:]}
    assert listed == {page for page in pages if not page.startswith("measurements/archive/")}


# ---------------------------------------------------------------- what is made from the code


def test_what_is_made_from_the_code_is_current_in_the_pages() -> None:
    files = pages.files()
    assert {name for text in files.values() for _, name, _ in pages.PART.findall(text)} == set(MADE)
    for page, text in files.items():
        assert page.read_text() == text, f"{page.name}: python -m docs._generate"


def rows(text: str, heading: str) -> set[str]:
    """The names in the first column of the tables below a heading, up to the next one of its level."""
    level = heading.split(" ")[0]
    below = f"\n{text}".split(f"\n{heading}\n", 1)[1]
    below = re.split(rf"^#{{1,{len(level)}}} ", below, maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^\| `([^` ]+)", below, re.MULTILINE))


def test_every_field_of_a_record_is_in_the_reference() -> None:
    names = {struct.__name__ for struct in record.parts()}
    assert {"Record", "Timing", "Quartiles", "Quality", "Machine", "Rank", "Topology"} <= names
    for struct in record.parts():
        assert rows(MADE["record"], f"## {struct.__name__}") == set(struct.__struct_fields__)
        assert all(map(record.meaning, get_type_hints(struct, include_extras=True).values())), struct.__name__


def test_every_column_of_every_table_is_in_the_reference() -> None:
    for table in TABLES.values():
        named = {column.name for column in table.columns(columns.default_study())}
        assert rows(MADE["tables"], f"## {table.name}.csv") == named


def test_every_command_and_option_is_in_the_reference() -> None:
    values = list(cli.commands())
    assert len(values) >= 18
    for parser in values:
        printed = rows(MADE["cli"], f"## {parser.prog}")
        options = {action.option_strings[-1] for action in parser._actions if action.option_strings}
        assert options - {"--help"} <= printed, parser.prog


# ---------------------------------------------------------------- pictures


def test_pictures_are_what_their_script_draws() -> None:
    for name, text in pictures.files().items():
        assert (DOCS / "images" / name).read_text() == text, "python -m docs._generate.pictures"


def test_the_readme_is_short_and_begins_with_what_to_do() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 700
    install, example, output, commands = list(blocks(ROOT / "README.md"))[:4]
    assert [each.language for each in (install, example, output, commands)] == ["sh", "python", "text", "sh"]
    assert len(install.text.splitlines()) == 1 and len(commands.text.splitlines()) == 2
    assert len([line for line in example.text.splitlines() if line]) == 10
    parts = (install.text, example.text, commands.text, "docs/images/scaling.svg", "\n## ")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert MADE["version"].endswith(text.partition("![Version ")[2].partition("]")[0] + ".")


def test_the_configuration_of_the_site_is_read() -> None:
    """Only `make docs` reads it otherwise; it names packages whose members it lists."""
    result = subprocess.run([sys.executable, DOCS / "conf.py"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-500:]
