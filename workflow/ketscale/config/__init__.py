"""Configs: typed settings, and what a family says of itself. Light on purpose: every start of Snakemake imports it."""

from ketscale.config.block import Block, Count, Name, Positive, Seed
from ketscale.config.config import Config, ConfigFile, sources
from ketscale.config.family import Data, Families, Family, Metric, Model, Simulator, Split, Workload
from ketscale.config.parsing import checked, parse, resolved, schema, suggestion
from ketscale.config.protocol import EarlyStopping, Plateau, Protocol
from ketscale.config.published import published_schema
from ketscale.config.settings import Settings
from ketscale.config.yaml import load
from ketscale.grid import SizeAxis

__all__ = [
    "Block",
    "Config",
    "ConfigFile",
    "Count",
    "Data",
    "EarlyStopping",
    "Families",
    "Family",
    "Metric",
    "Model",
    "Name",
    "Plateau",
    "Positive",
    "Protocol",
    "Seed",
    "Settings",
    "Simulator",
    "SizeAxis",
    "Split",
    "Workload",
    "checked",
    "load",
    "parse",
    "published_schema",
    "resolved",
    "schema",
    "sources",
    "suggestion",
]
