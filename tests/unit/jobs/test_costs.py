"""The cost model: a known law is found, and of what no record tells nothing is said."""

import math
import random

import numpy as np
import pytest

from ketscale.jobs.costs import Costs, records
from ketscale.jobs.costs.records import Sample
from tests import record_maker as maker

LAYOUTS = ["cpu-n1r1t1", "cpu-n1r1t2", "mpi-n1r2t1"]


def study(**axes):
    return maker.config(one=maker.study(**{"seed": 0, "simulator": "fused", **axes}))


def law(settings):
    """Seconds a step: a power law of what a step computes, and of the workers that share it."""
    run, sizes = settings.run, settings.sizes
    slower = {"fused": 1, "default.qubit": 6}[run.simulator]
    work = 1e-5 * slower * run.batch**0.6 * (1 + sizes["layers"]) ** 0.9 * 1.5 ** sizes["qubits"]
    return work * (run.ranks * run.threads) ** -0.4 * (1.2 if run.ranks > 1 else 1)


def sample(settings, step_s, **changes):
    costs = {"pace_s": step_s, "start_s": 2.0, "memory_bytes": 3e8, **changes}
    at = known_case(settings)
    steps, batch = settings.protocol.steps or 400, settings.run.batch
    whole = costs["start_s"] + steps * costs["pace_s"]
    return Sample(at, costs, steps, -(-1257 // batch), batch, None, None, whole, True)


def known_case(settings):
    return records.case(settings.content, settings.sizes, "a machine")


def drawn(config, noise, seed=0):
    draw = random.Random(seed)
    return [
        sample(settings := config.settings(run), law(settings) * math.exp(draw.gauss(0, noise)))
        for run in config.runs
    ]


def grid(**axes):
    return study(
        **{"qubits": [2, 4, 6, 8], "layers": [1, 3, 6], "batch": [32, 256], "backend": LAYOUTS, **axes}
    )


def forecast(known, settings):
    """The forecasts of runs, each alone, of which something is known."""
    made = map(Costs(known).forecast, settings)
    return {one.run: one for one in made if one}


def off(config, known, runs):
    """How far the forecasts of runs are from the law, relatively."""
    every = [config.settings(run) for run in runs]
    costs = Costs(known)
    made = [costs.costs(known_case(one)) for one in every]
    return np.array([abs(at["pace_s"].middle / law(one) - 1) for at, one in zip(made, every, strict=True)])


def test_an_exact_law_is_found_between_records():
    config = grid()
    middle = {"qubits": 1, "layers": 0.75}
    known = [one for one in drawn(config, 0.0) if not middle.items() <= one.case.numbers.items()]
    runs = [run for run in config.runs if config.settings(run).sizes == {"qubits": 4, "layers": 3}]
    assert len(known) == len(config.runs) - len(runs) == 66
    assert np.median(off(config, known, runs)) < 0.05


def test_of_what_no_record_tells_nothing_is_said():
    config = study(simulator=["fused", "default.qubit"])
    everything = [config.settings(run) for run in config.runs]
    assert forecast([], everything) == {}
    [fused] = [run for run in config.runs if run.simulator == "fused"]
    known = [sample(config.settings(fused), 1e-3)]
    assert set(forecast(known, everything)) == {fused}
    other = maker.config(one=maker.study(model="mlp", qubits=0, layers=0, simulator="none", seed=0))
    assert forecast(known, [other.settings(run) for run in other.runs]) == {}


def test_a_run_takes_its_start_and_its_steps():
    config = study(seed=[0, 1])
    first, second = (config.settings(run) for run in config.runs)
    made = forecast([sample(first, 0.02, start_s=3.0)], [second])[second.run]
    assert made.seconds.middle == pytest.approx(3.0 + 400 * 0.02, rel=1e-3)
    assert made.node_hours.middle == pytest.approx(made.seconds.middle / 3600)
    assert made.memory_bytes.middle == pytest.approx(3e8, rel=1e-3)


def test_a_run_that_may_stop_early_takes_all_epochs_until_records_tell_when():
    config = study(protocol=["timing", "quality"], seed=[0, 1, 2])
    timed, quality = (
        [config.settings(r) for r in config.runs if r.protocol == p] for p in ("timing", "quality")
    )
    timing = sample(timed[0], 0.01, start_s=1.0)
    only = forecast([timing], quality)[quality[0].run]
    # 100 epochs of 1257 samples in batches of 64; at least the patience of 10 and one.
    assert only.seconds.middle == pytest.approx(1 + 100 * 20 * 0.01, rel=1e-3)
    assert only.seconds.low < 1 + 11 * 20 * 0.01 < only.seconds.high
    ended = Sample(
        known_case(quality[0]),
        {**timing.costs, "validation_s": 0.1}, 400, 20, 64, 20, 100, 1 + 20 * (0.2 + 0.1), True,
    )  # fmt: skip
    told = forecast([timing, ended], quality[1:])[quality[1].run]
    assert told.seconds.middle == pytest.approx(1 + 20 * (0.2 + 0.1), rel=0.05)
    assert told.seconds.high > 1 + 100 * 0.3


def test_a_record_is_a_sample():
    config = study()
    settings = config.settings(config.runs[0])
    timing = {
        **maker.timed(settings.run, 8.0),
        "step": {"median_s": 0.1, "q25_s": 0.1, "q75_s": 0.2, "mean_s": 0.15, "count": 39},
    }
    made = maker.of(
        settings, **maker.used(settings.run), timing=timing, started=maker.TIME, stopped="2026-01-01T00:00:10+00:00"
    )  # fmt: skip
    found = records.sample(maker.typed(made))
    assert found.seconds == 10.5
    # 39 steps in 8 s but the first, which took 0.2 s.
    assert found.costs["pace_s"] == pytest.approx(0.2)
    assert found.costs["start_s"] == pytest.approx(10.5 - 40 * 0.2)
    assert found.case.names["machine"] == "A processor, 2 cores"
    assert records.sample(maker.typed({**made, "resumed": 1})) is None
    assert records.sample(maker.typed({**made, "status": "diverged"})) is None
