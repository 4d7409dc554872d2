"""What the documentation shows works as printed."""

import re

import torch

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.factory import named_simulator
from tests.parallel.worlds import ROOT


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def test_the_model_of_the_how_to_is_whole():
    namespace = {}
    exec(compile(blocks("docs/adding.md")[0], "docs/adding.md", "exec"), namespace)
    model = namespace["Reupload"](
        qubits=2, layers=2, simulator=named_simulator("fused"), inputs=5, outputs=3, dropout=0.0
    )
    assert isinstance(model.circuit, Circuit)
    logits = model(torch.randn(4, 5))
    logits.sum().backward()
    assert logits.shape == (4, 3)
    assert model.weights.grad is not None


def test_the_readme_trains_a_model_in_three_lines():
    (code,) = blocks("README.md")
    assert len([line for line in code.splitlines() if line]) == 3
    namespace = {}
    exec(compile(code, "README.md", "exec"), namespace)
    assert namespace["logits"].shape == (8, 10)


def test_links_lead_somewhere():
    for name in ("README.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))):
        text = (ROOT / name).read_text()
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert ((ROOT / name).parent / target).exists(), f"{name}: {target}"
