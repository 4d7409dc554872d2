"""The reference of the Python interface, from its docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from docs._generate.markdown import code

_ARGUMENT = r"\*{0,2}[a-z]\w*(?:, \*{0,2}[a-z]\w*)*: "
# What is described of each module: its `__all__`, what it defines, or some names.
_CIRCUITS = "ketscale.engines.circuits"
_PROBLEMS = "ketscale.problems"
PLUG_INS = [
    f"{_PROBLEMS}.vectors.vqc.VQC",
    f"{_PROBLEMS}.library.Trained", f"{_PROBLEMS}.problem.Problem", f"{_PROBLEMS}.fitted.Samples",
    *(f"{_PROBLEMS}.samplers.{name}" for name in ("Shuffled", "All", "Stream")),
]  # fmt: skip
SECTIONS: dict[str, list[str]] = {
    "ketscale": ["ketscale"],
    "ketscale.jax": ["ketscale.jax"],
    "ketscale.dynamics": ["ketscale.dynamics"],
    "ketscale.engines.circuits": [
        *(f"{_CIRCUITS}.circuit.{name}" for name in ("Gate", "Column", "Angles", "given", "pauli_words")),
        f"{_CIRCUITS}.ansaetze", f"{_CIRCUITS}.simulator",
        *(f"ketscale.simulators.factory.{name}" for name in ("named_simulator", "resolve_simulator")),
    ],
    "ketscale.engines.pulses": ["ketscale.engines.pulses"],
    "ketscale.problems": PLUG_INS,
    "ketscale.analysis": ["ketscale.analysis.read"],
}  # fmt: skip


def page() -> str:
    """Every section with its names."""
    parts: list[str] = []
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}")
        for name in names:
            parts += _entry(name)
    return "\n\n".join(parts)


def found(name: str) -> Any:
    """A module, or what has this name in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


def _entry(name: str) -> Iterator[str]:
    public = found(name)
    if isinstance(public, ModuleType):
        for inner in _members(public):
            yield from _entry(f"{name}.{inner}")
    elif callable(public):
        yield f"### {name}"
        yield from _described(name.rpartition(".")[2], public)
        yield from _methods(public)


def _members(module: ModuleType) -> list[str]:
    own = (
        name for name, each in vars(module).items() if getattr(each, "__module__", None) == module.__name__
    )
    return [
        name
        for name in getattr(module, "__all__", own)
        if inspect.getdoc(getattr(module, name)) and not name.startswith("_")
    ]


def methods(public: Any) -> list[str]:
    """The public methods and properties of a class that are its own and described."""
    kinds = FunctionType | classmethod | staticmethod | property
    own = vars(public) if isinstance(public, type) else {}
    return [
        name
        for name, each in own.items()
        if isinstance(each, kinds) and not name.startswith("_") and each.__doc__
    ]


def _described(name: str, public: Any) -> Iterator[str]:
    """A signature and what the docstring says."""
    yield f"```text\n{signature(name, public)}\n```"
    for paragraph in (inspect.getdoc(public) or "").split("\n\n"):
        yield from _paragraph(paragraph)


def _methods(public: type) -> Iterator[str]:
    """A line for each short method, and for a longer one what its docstring says."""
    short = []
    for own in methods(public):
        method = inspect.getattr_static(public, own)
        method = getattr(method, "__func__", method)
        name, text = f"{public.__name__}.{own}", inspect.getdoc(method) or ""
        if "\n\n" in text or re.match(_ARGUMENT, text):
            yield from _described(name, method)
        else:
            short.append(f"- {code(signature(name, method))}: {_prose(text)}")
    if short:
        yield "\n".join(short)


def signature(name: str, public: Any) -> str:
    """The arguments with their defaults, without types."""
    if isinstance(public, property):
        return name
    try:
        found = inspect.signature(public)
    except ValueError:
        return name
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    # A default that has no text of its own shows an address.
    return name + re.sub(r"<([\w.]+)[^<>]*?(?: at 0x[0-9a-f]+)?>", r"\1", text)


def _paragraph(text: str) -> Iterator[str]:
    heading, _, rest = text.partition("\n")
    if heading == "Example:":
        yield f"```pycon\n{textwrap.dedent(rest)}\n```"
    elif heading == "Raises:":
        yield "\n".join(f"- raises {_item(item)}" for item in _items(textwrap.dedent(rest)))
    elif heading.startswith("Attributes:"):
        yield "\n".join(f"- {_item(item)}" for item in _items(textwrap.dedent(text[12:])))
    elif all(line.startswith("    ") for line in text.split("\n")):
        yield f"```text\n{textwrap.dedent(text)}\n```"
    else:
        first, *items = _items(text)
        named = re.match(_ARGUMENT, first) is not None
        if not named:
            yield _prose(first)
        if items or named:
            yield "\n".join(f"- {_item(item)}" for item in ([first, *items] if named else items))


def _items(text: str) -> list[str]:
    """Text that is divided before each line that begins with a name of an argument or error and a colon."""
    return re.split(rf"\n(?={_ARGUMENT}|[A-Z]\w*(?:Error|Exit)?: )", text)


def _item(text: str) -> str:
    """'name: what it is', with the name as code."""
    names, _, meaning = text.partition(": ")
    return f"{', '.join(map(code, names.split(', ')))}: {_prose(meaning)}"


def _prose(text: str) -> str:
    """One line; nothing outside of code is markup."""
    line = " ".join(text.split())
    return re.sub(
        r"`[^`]*`|[*_<\[]|^\|", lambda found: found[0] if found[0][0] == "`" else f"\\{found[0]}", line
    )
