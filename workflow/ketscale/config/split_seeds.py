"""Several splits of the same data: a block of a workload with `split_seeds` stands for one workload for each seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ketscale.config.block import Seed
from ketscale.config.file import ConfigFile
from ketscale.config.parsing import check
from ketscale.errors import UserError
from ketscale.grid import listed

SEEDS = "split_seeds"
Seeds = Annotated[
    list[Seed],
    Meta(
        min_length=1,
        description="Instead of split_seed: seeds of several splits of the same data, each a workload NAME.sSEED; a study "
        "that names the workload has them all",
    ),
]


def expanded(file: ConfigFile) -> tuple[ConfigFile, dict[str, str]]:
    """The config with one workload, NAME.sSEED, for each of a block's `split_seeds`, and NAME by these names.

    Studies that name the block have all of its splits.

    Raises:
        UserError: seeds are given twice, or beside one seed, or a split has the name of another workload.
    """
    workloads: dict[str, dict[str, Any]] = {}
    bases: dict[str, str] = {}
    for base, block in file.workloads.items():
        if SEEDS not in block:
            workloads[base] = block
            continue
        where = f"workloads.{base}.{SEEDS}"
        seeds = block[SEEDS]
        check(Seeds, seeds, where)
        if len(set(seeds)) < len(seeds):
            raise UserError(f"{where}: a seed is given twice; keep one")
        if "split_seed" in block:
            raise UserError(f"{where}: split_seed gives one split; leave one of them out")
        rest = {name: value for name, value in block.items() if name != SEEDS}
        for seed in seeds:
            name = f"{base}.s{seed}"
            if name in file.workloads:
                raise UserError(f"workloads.{name}: has the name of a split of {base}; choose another")
            workloads[name] = {**rest, "split_seed": seed}
            bases[name] = base
    if not bases:
        return file, bases
    splits: dict[str, list[str]] = {}
    for name, base in bases.items():
        splits.setdefault(base, []).append(name)

    def of_splits(axes: Mapping[str, Any]) -> dict[str, Any]:
        if "workload" not in axes:
            return dict(axes)
        names = [name for each in listed(axes["workload"]) for name in splits.get(str(each), [each])]
        return {**axes, "workload": names if len(names) > 1 else names[0]}

    studies = {
        name: msgspec.structs.replace(
            block,
            axes=of_splits(block.axes),
            points=None if block.points is None else [of_splits(point) for point in block.points],
        )
        for name, block in file.studies.items()
    }
    return msgspec.structs.replace(file, workloads=workloads, studies=studies), bases
