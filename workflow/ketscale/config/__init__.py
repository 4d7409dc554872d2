"""Configs: typed settings, and the specification of families. Imports nothing heavy, as Snakemake starts with it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ketscale.config.block import MOST, Block, Count, Name, Positive, Seed, at, checked, parse, resolved
from ketscale.config.config import Config, sources
from ketscale.config.conflicts import conflicts
from ketscale.config.family import (
    Baseline,
    Data,
    Families,
    Family,
    Model,
    Sampling,
    Settings,
    Simulator,
    Split,
    WithTargets,
    Workload,
    lazily,
    model_kinds,
    workload_kinds,
)
from ketscale.config.file import published_schema, schema
from ketscale.config.metrics import METRICS, REGRESSION, Metric
from ketscale.config.own_code import FileModel, OwnCode
from ketscale.config.protocol import Plateau, Protocol
from ketscale.grid import SizeAxis
from ketscale.words import suggestion

# PyYAML is needed only to read a file, not to use settings.
load: Callable[[Path | str], dict[str, Any]] = lazily("ketscale.config.yaml:load")
merge: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = lazily("ketscale.config.yaml:merge")
