"""Machine code for this kind of processor: a writer of vector code, and the library that compiles and caches it."""

from ketscale.errors import UserError

try:
    import llvmlite  # noqa: F401
except ModuleNotFoundError:
    raise UserError(
        "simulator 'fused', compiled propagators and the classical models' scan need llvmlite, which is not installed: pip install llvmlite (in a checkout: make setup)"
    ) from None
