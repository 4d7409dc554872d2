"""Machine code for this kind of processor: the language that kernels are written in, and how they are compiled and kept."""

from ketscale.errors import UserError

try:
    import llvmlite  # noqa: F401
except ModuleNotFoundError:
    raise UserError(
        "simulator 'fused', compiled propagators and the classical models' scan need llvmlite, which is not installed: pip install llvmlite (in a checkout: make setup)"
    ) from None
