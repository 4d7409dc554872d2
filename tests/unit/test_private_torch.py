"""Torch's private names do what KetScale uses them for, and two files alone use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ketscale
from ketscale import autograd_function, private_torch

PACKAGE = Path(ketscale.__file__).parent
HOMES = (PACKAGE / "private_torch.py", PACKAGE / "autograd_function.py")


def private_names(path: Path) -> Iterator[str]:
    """The private names that a file takes from torch: by an import, or by the dots after one."""
    tree = ast.parse(path.read_text())
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            bound |= {alias.asname or alias.name for alias in node.names}
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            values = [alias for alias in node.names if alias.name.partition(".")[0] == "torch"]
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in values}
            yield from (alias.name for alias in values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            chain = ast.unparse(node)
            if chain.partition(".")[0] in bound and chain.replace(".", "").isidentifier():
                yield chain


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def test_private_names_of_torch_are_in_two_files() -> None:
    result = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if path not in HOMES and "torch" in path.read_text()
        for name in private_names(path)
        if is_private(name)
    }
    assert sorted(result) == []
    assert all(any(map(is_private, private_names(home))) for home in HOMES)


def test_adams_step_is_that_of_torchs_own_class() -> None:
    value = torch.tensor([1.0, -2.0], dtype=torch.float64)
    gradient = torch.tensor([0.3, 0.1], dtype=torch.float64)
    expected = torch.nn.Parameter(value.clone())
    optimiser = torch.optim.Adam([expected], lr=0.1, weight_decay=0.2, eps=1e-8, betas=(0.9, 0.99))
    means, squares, steps = torch.zeros_like(value), torch.zeros_like(value), torch.tensor(0.0)
    for _ in range(3):
        expected.grad = gradient.clone()
        optimiser.step()
        steps += 1
        private_torch.fused_adam_step(
            [value], [gradient], [means], [squares], [], [steps], amsgrad=False, beta1=0.9, beta2=0.99, lr=0.1,
            weight_decay=0.2, eps=1e-8, maximize=False,
        )  # fmt: skip
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0)


def test_gradients_are_added_to_the_leaves_as_torchs_backward_does() -> None:
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    leaf.grad = torch.ones(2)
    private_torch.pull_back([leaf.square(), leaf.sum()], [torch.tensor([3.0, 4.0]), torch.tensor(5.0)])
    assert torch.equal(leaf.grad, torch.tensor([1 + 6 + 5.0, 1 + 16 + 5]))


def test_transforms_of_torch_func_are_seen() -> None:
    calls = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(
            (private_torch.transforms_active(), private_torch.only_mapped(), private_torch.is_mapped(x))
        )
        return x.sum()

    function(torch.ones(2))
    torch.func.vmap(function)(torch.ones(3, 2))
    torch.func.grad(function)(torch.ones(2))
    torch.func.vmap(torch.func.grad(function))(torch.ones(3, 2))
    assert [active for active, _, _ in calls] == [False, True, True, True]
    assert [only for _, only, _ in calls] == [False, True, False, False]
    assert [mapped for _, _, mapped in calls] == [False, True, False, True]


def test_a_function_sees_all_members_of_a_vmap() -> None:
    shapes = []

    def of_all(x: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        shapes.append((x.shape, shared.shape))
        return x * shared

    def of_one(x: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        return autograd_function.at_once(of_all, x, shared)

    rows, shared = torch.arange(6.0).reshape(2, 3), torch.tensor([2.0, 3.0])
    result = torch.func.vmap(of_one, in_dims=(1, None))(rows, shared)
    assert shapes == [((3, 2), (3, 2))]
    assert torch.equal(result, rows.T * shared)


def test_a_vmap_may_have_no_members() -> None:
    x, y = torch.zeros(0, 3), torch.ones(3, requires_grad=True)
    circuit = ketscale.Circuit(2).ry(0, "x0").rx(1, "w0")
    layer, rows = ketscale.Layer(circuit), torch.ones(5, 1)

    def of_layer(weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (rows,)).sum()

    for function, shape in (
        (lambda x: autograd_function.applied(Wave(), x, y)[0], (0, 3)),
        (torch.func.grad(lambda x: autograd_function.applied(Wave(), x, y)[0].sum()), (0, 3)),
        (lambda x: autograd_function.at_once(torch.mul, x, y), (0, 3)),
        (lambda x: of_layer(x[:1]), (0,)),
        (torch.func.grad(lambda x: of_layer(x[:1])), (0, 3)),
    ):
        assert torch.func.vmap(function)(x).shape == shape
    (slope,) = torch.autograd.grad(
        torch.func.vmap(lambda x: autograd_function.applied(Wave(), x, y)[0])(x).sum(), y
    )
    assert slope.tolist() == [0, 0, 0]


class Wave:
    """y sin(x + shift), number by number, with its own rules; `calls` counts what is computed."""

    calls = 0

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        Wave.calls += 1
        return (y * torch.sin(x + self.shift),)

    def pull(self, tensors, cotangents, needed):
        (x, y), (cotangent,) = tensors, cotangents
        to_x = (
            autograd_function.applied(Wave(self.shift + torch.pi / 2), x, cotangent * y)[0]
            if needed[0]
            else None
        )
        return to_x, autograd_function.applied(self, x, cotangent)[0] if needed[1] else None

    def push(self, tensors, tangents):
        (x, y), (along_x, along_y) = tensors, tangents
        parts = [] if along_y is None else [autograd_function.applied(self, x, along_y)[0]]
        if along_x is not None:
            parts.append(autograd_function.applied(Wave(self.shift + torch.pi / 2), x, along_x * y)[0])
        return (sum(parts),)

    def many(self, members, mapped, *tensors):
        every = (x if has else x.expand(members, *x.shape) for x, has in zip(tensors, mapped, strict=True))
        return autograd_function.applied(self, *every)


def summed(function):
    return lambda x, y: function(x, y).sum()


# Each makes of a function of two vectors another one.
TRANSFORMS = {
    "grad": lambda f: torch.func.grad(summed(f)),
    "grad by y": lambda f: torch.func.grad(summed(f), 1),
    "jvp": lambda f: lambda x, y: torch.func.jvp(f, (x, y), (y, x))[1],
    "jvp by x": lambda f: lambda x, y: torch.func.jvp(lambda x: f(x, y), (x,), (y,))[1],
    "vmap": lambda f: lambda x, y: torch.func.vmap(f, (0, None), 1)(torch.stack([x, y]), y)[:, 0],
    "jacrev": lambda f: lambda x, y: torch.func.jacrev(f)(x, y).sum(0),
    "jacfwd": lambda f: lambda x, y: torch.func.jacfwd(f, 1)(x, y).sum(0),
    "vjp after": lambda f: lambda x, y: torch.func.vjp(f, x, y)[1](y)[0],
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's forward mode itself
@pytest.mark.parametrize("inner", TRANSFORMS)
@pytest.mark.parametrize("outer", TRANSFORMS)
def test_a_function_with_rules_in_all_nestings_of_two_transforms(outer: str, inner: str) -> None:
    x, y = torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    result = TRANSFORMS[outer], TRANSFORMS[inner]
    expected = result[0](result[1](lambda x, y: y * x.sin()))(x, y)
    value = result[0](result[1](lambda x, y: autograd_function.applied(Wave(), x, y)[0]))(x, y)
    torch.testing.assert_close(value, expected)
    # Autograd itself outside of it.
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(
        result[1](lambda x, y: autograd_function.applied(Wave(), x, y)[0])(leaf, y).sum(),
        leaf,
        create_graph=True,
    )
    reference = torch.func.grad(lambda x: result[1](lambda x, y: y * x.sin())(x, y).sum())(x)
    torch.testing.assert_close(slope.detach(), reference)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_nothing_is_computed_along_tangents_that_are_not_there() -> None:
    x, y = torch.rand(2, 3)
    Wave.calls = 0
    torch.func.jvp(lambda x: autograd_function.applied(Wave(), x, y)[0], (x,), (y,))
    assert Wave.calls == 2


def test_gradients_that_are_asked_for_at_once_are_seen() -> None:
    calls = []

    class Seeing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, cotangent):
            calls.append(private_torch.is_grad_batched(cotangent))
            return cotangent

    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(Seeing.apply(x), x, torch.ones(2))
    torch.autograd.grad(Seeing.apply(x), x, torch.eye(2), is_grads_batched=True)
    assert calls == [False, True]
