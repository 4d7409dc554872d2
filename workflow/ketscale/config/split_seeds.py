"""Several splits of the same data: a block of a workload with `split_seeds` stands for one workload for each seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from ketscale.config.block import Seed
from ketscale.config.parsing import Faults, faults_of
from ketscale.errors import UserError

SEEDS = "split_seeds"
Seeds = Annotated[
    list[Seed],
    Meta(
        min_length=1,
        description="Instead of split_seed: seeds of several splits of the same data, each a workload NAME.sSEED; a study "
        "that names the workload has them all",
    ),
]


def blocks(base: str, workloads: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The block of a workload, or that of each of its splits, NAME.sSEED, by name.

    Raises:
        UserError: seeds are given beside one seed, or a split has the name of another workload.
    """
    block = workloads[base]
    if SEEDS not in block:
        return {base: block}
    where, seeds = f"workloads.{base}.{SEEDS}", block[SEEDS]
    Faults(faults_of(Seeds, seeds, where)).refuse()
    folds = block.get("folds")
    # Seeds of one block have different folds of one order; another block has another order.
    orders = {seed // folds for seed in seeds} if isinstance(folds, int) and folds > 0 else set()
    if len(orders) > 1 and len(orders) * folds != len(seeds):
        raise UserError(f"{where}: {folds} folds need whole blocks of seeds, such as 0 to {folds - 1}")
    if "split_seed" in block:
        raise UserError(f"{where}: split_seed gives one split; leave one of them out")
    rest = {name: value for name, value in block.items() if name != SEEDS}
    splits = {f"{base}.s{seed}": {**rest, "split_seed": seed} for seed in seeds}
    if taken := splits.keys() & workloads.keys():
        raise UserError(f"workloads.{min(taken)}: has the name of a split of {base}; choose another")
    return splits
