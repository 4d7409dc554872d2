"""The cost model: a known law is found, and of what no record tells nothing is said."""

import math
import random

import numpy as np
import pytest

from ketscale.jobs import costs
from ketscale.jobs.costs import Costs, Sample
from tests import record_maker as maker

LAYOUTS = ["cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1"]


def study(**axes):
    return maker.config(one=maker.study(**{"seed": 0, "simulator": "fused", **axes}))


def law(settings):
    """Seconds of a run: a power law of what it computes, and of the workers that share it."""
    run, sizes = settings.run, settings.sizes
    slower = {"fused": 1, "default.qubit": 6}[run.simulator]
    work = 4e-3 * slower * run.batch**0.6 * (1 + sizes["layers"]) ** 0.9 * 1.5 ** sizes["qubits"]
    return work * (run.ranks * run.threads) ** -0.4 * (1.2 if run.ranks > 1 else 1)


def every(config):
    return [config.settings(run) for run in config.runs]


def known_case(settings):
    return costs.case(settings.content, settings.sizes, "a machine")


def samples_of(config, noise, seed=0):
    draw = random.Random(seed)
    every = [config.settings(run) for run in config.runs]
    return [Sample(known_case(one), law(one) * math.exp(draw.gauss(0, noise))) for one in every]


def grid(**axes):
    return study(
        **{"qubits": [2, 4, 6, 8], "layers": [1, 3, 6], "batch": [32, 256], "backend": LAYOUTS, **axes}
    )


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_law_is_found_between_records(noise):
    config = grid()
    middle = {"qubits": 1, "layers": 0.75}
    held_out = [one for one in samples_of(config, noise) if not middle.items() <= one.case.numbers.items()]
    left_out = [one for one in every(config) if one.sizes == {"qubits": 4, "layers": 3}]
    assert len(held_out) == len(config.runs) - len(left_out) == 66
    values = [Costs(held_out).seconds(known_case(one)) for one in left_out]
    off = [abs(math.log(at.middle / law(one))) for at, one in zip(values, left_out, strict=True)]
    assert np.median(off) < 0.05 + noise
    assert all(at.low < law(one) < at.high for at, one in zip(values, left_out, strict=True))
    # Further away, less is known.
    (far,) = every(study(qubits=10, layers=6))
    wider = Costs(held_out).seconds(known_case(far))
    assert wider.high / wider.low > values[0].high / values[0].low


def test_of_what_no_record_tells_nothing_is_said():
    config = study(simulator=["fused", "default.qubit"])
    [fused] = [run for run in config.runs if run.simulator == "fused"]
    assert Costs([]).forecasts(every(config)) == {}
    costs = Costs([Sample(known_case(config.settings(fused)), 9.0)])
    assert {*costs.forecasts(every(config))} == {fused}
    for far in (
        study(model="mlp", qubits=0, layers=0, simulator="none"),
        study(batch=2**12),
        study(qubits=12),
        study(protocol="quality"),
    ):
        assert costs.forecasts(every(far)) == {}


def test_another_seed_costs_what_the_seeds_of_its_point_did():
    config = study(seed=[0, 1, 2], qubits=[2, 4], backend="mpi-n2r2t1")
    case = known_case(config.settings(config.runs[0]))
    told = Costs([Sample(case, seconds) for seconds in (8.0, 12.5)])
    result = told.forecasts(every(config))
    assert result.keys() == {*config.runs}
    one = result[config.runs[-2 if config.runs[-1].size != config.runs[0].size else -1]]
    assert one.seconds.middle == pytest.approx(10)
    assert one.seconds.low < 8 and one.seconds.high > 12.5
    assert one.node_hours.middle == pytest.approx(2 * 10 / 3600)
    assert costs.total([one, one]).low == pytest.approx(2 * one.node_hours.low)


def test_a_record_is_a_sample():
    config = study()
    settings = config.settings(config.runs[0])
    used = {"timing": maker.timed(settings.run, 8.0), **maker.used(settings.run)}
    result = maker.of(settings, **used, started=maker.TIME, stopped="2026-01-01T00:00:10+00:00")
    value = costs.sample(maker.typed(result))
    assert value.seconds == 10.5
    assert value.case.names["machine"] == "A processor, 2 cores"
    assert costs.sample(maker.typed({**result, "resumed": 1})) is None
    assert costs.sample(maker.typed({**result, "status": "diverged"})) is None
