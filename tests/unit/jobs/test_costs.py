"""The cost model: known laws are found and intervals cover, and of what no record tells nothing is said."""

import math
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ketscale.jobs import driver
from ketscale.jobs.costs import Call, Costs, call, records
from ketscale.jobs.costs.records import Sample
from ketscale.jobs.ownership import finished
from tests import record_maker as maker
from tests.unit.jobs import judged_costs as judge

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
    costs = {"step_s": step_s, "pace_s": step_s, "start_s": 2.0, "memory_bytes": 3e8, **changes}
    at = known_case(settings)
    steps, batch = settings.protocol.steps or 400, settings.run.batch
    return Sample(
        at,
        costs,
        steps,
        -(-1257 // batch),
        batch,
        None,
        None,
        False,
        costs["start_s"] + steps * costs["pace_s"],
        True,
    )


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


def off(config, known, runs):
    """How far the forecasts of runs are from the law, relatively."""
    made = Costs(known).forecast([config.settings(run) for run in runs])
    return np.array([abs(made[run].step_s.middle / law(config.settings(run)) - 1) for run in runs])


def test_an_exact_law_is_found_between_records():
    config = grid()
    known = [
        one
        for one in drawn(config, 0.0)
        if one.case.numbers["qubits"] != 1 or one.case.numbers["layers"] != 0.75
    ]
    runs = [run for run in config.runs if config.settings(run).sizes == {"qubits": 4, "layers": 3}]
    assert len(known) == len(config.runs) - len(runs) == 66
    assert np.median(off(config, known, runs)) < 0.05


def test_an_exact_law_is_found_beyond_records():
    config = grid()
    known = [one for one in drawn(config, 0.0) if one.case.numbers["qubits"] < 2]
    runs = [run for run in config.runs if config.settings(run).sizes["qubits"] == 8]
    # Steps of 8 qubits take four times as long as the longest known: the trend that is continued is steeper at its end.
    assert np.median(off(config, known, runs)) < 0.3
    made = Costs(known).forecast([config.settings(run) for run in runs])
    assert {one.place for one in made.values()} == {"beyond"}
    inside = [one.step_s.low < law(config.settings(run)) < one.step_s.high for run, one in made.items()]
    assert np.mean(inside) >= 0.9


def test_intervals_cover_what_noise_hides():
    config = grid()
    verdicts = {one.place: one for one in judge.judge(drawn(config, 0.1))}
    within, beyond = verdicts["within"], verdicts["beyond"]
    assert (within.groups, within.runs) == (36, 72)
    assert 0.85 <= within.coverage["step_s"] <= 0.95 and within.error["step_s"] < 1.2
    # 16 ends and layouts are few groups, so their intervals are rather too wide.
    assert beyond.coverage["step_s"] >= 0.85
    assert within.width["step_s"] < 1.5 < beyond.width["step_s"] < 10


def test_one_record_gives_a_wide_interval_that_is_widest_far_away():
    config = grid()
    known = drawn(config, 0.0)[:1]
    made = Costs(known).forecast([config.settings(run) for run in config.runs])
    near, far = made[config.runs[0]], [*made.values()][-1]
    assert near.place == "repeat" and near.step_s.middle == pytest.approx(known[0].costs["step_s"], rel=0.01)
    assert 1.2 < near.step_s.high / near.step_s.middle < 3
    assert far.place == "beyond" and far.step_s.high / far.step_s.middle > 10
    assert far.step_s.low < law(config.settings(far.run)) < far.step_s.high


def test_of_what_no_record_tells_nothing_is_said():
    config = study(simulator=["fused", "default.qubit"])
    everything = [config.settings(run) for run in config.runs]
    assert Costs([]).forecast(everything) == {}
    [fused] = [run for run in config.runs if run.simulator == "fused"]
    known = [sample(config.settings(fused), 1e-3)]
    assert set(Costs(known).forecast(everything)) == {fused}
    other = maker.config(one=maker.study(model="mlp", qubits=0, layers=0, simulator="none", seed=0))
    assert Costs(known).forecast([other.settings(run) for run in other.runs]) == {}


def test_nothing_is_said_of_sizes_far_from_all_records():
    """A study's grid farther, four qubits or eight times the batch, is the most."""
    config = study(qubits=[4, 8, 9, 30])
    known = [sample(config.settings(run), 1e-3) for run in config.runs if run.size == "q4-l3"]
    made = Costs(known).forecast([config.settings(run) for run in config.runs])
    assert {run.size for run in made} == {"q4-l3", "q8-l3"}
    config = study(batch=[64, 512, 513])
    known = [sample(config.settings(run), 1e-3) for run in config.runs if run.batch == 64]
    made = Costs(known).forecast([config.settings(run) for run in config.runs])
    assert {run.batch for run in made} == {64, 512}


def test_a_run_takes_its_start_and_its_steps():
    config = study(seed=[0, 1])
    first, second = (config.settings(run) for run in config.runs)
    made = Costs([sample(first, 0.01, pace_s=0.02, start_s=3.0)]).forecast([second])[second.run]
    assert made.wall_s.middle == pytest.approx(3.0 + 400 * 0.02, rel=1e-3)
    assert made.node_hours.middle == pytest.approx(made.wall_s.middle / 3600)
    assert made.memory_bytes.middle == pytest.approx(3e8, rel=1e-3)


def test_a_run_that_may_stop_early_takes_at_most_all_epochs_until_records_tell_when():
    config = study(protocol=["timing", "quality"], seed=[0, 1, 2])
    timed, quality = (
        [config.settings(r) for r in config.runs if r.protocol == p] for p in ("timing", "quality")
    )
    timing = sample(timed[0], 0.01, start_s=1.0)
    only = Costs([timing]).forecast(quality)[quality[0].run]
    # 100 epochs of 1257 samples in batches of 64; at least the patience of 10 and one.
    assert only.at_most
    assert only.wall_s.middle == pytest.approx(1 + 100 * 20 * 0.01, rel=1e-3)
    assert only.wall_s.low < 1 + 11 * 20 * 0.01 < only.wall_s.high
    ended = Sample(
        records.case(quality[0].content, quality[0].sizes, "a machine"),
        {**timing.costs, "validation_s": 0.1}, 400, 20, 64, 20, 100, True, 1 + 20 * (0.2 + 0.1), True,
    )  # fmt: skip
    told = Costs([timing, ended]).forecast(quality[1:])[quality[1].run]
    assert not told.at_most
    assert told.wall_s.middle == pytest.approx(1 + 20 * (0.2 + 0.1), rel=0.05)
    assert told.wall_s.high > 1 + 100 * 0.3


@pytest.mark.parametrize("batch, steps", [(16, 79), (64, 20), (512, 3)])
def test_the_steps_of_an_epoch_follow_from_records_of_other_batches(batch, steps):
    config = study(batch=[16, 64, 100, 512], protocol=["timing", "quality"])
    at = {(run.batch, run.protocol): config.settings(run) for run in config.runs}
    # 1257 samples are between 12 and 13 batches of 100, and between 78 and 79 of 16.
    known = Costs([sample(at[size, "timing"], 0.01) for size in (16, 100)])
    wanted = at[batch, "quality"]
    assert known._steps(wanted, known_case(wanted)) == 100 * steps


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
    assert found.costs["step_s"] == 0.1
    assert found.costs["start_s"] == pytest.approx(10.5 - 40 * 0.2)
    assert found.case.names["machine"] == "A processor, 2 cores"
    assert records.sample(maker.typed({**made, "resumed": 1})) is None
    assert records.sample(maker.typed({**made, "status": "diverged"})) is None


def test_busy_records_count_only_where_a_point_has_no_quiet_one(tmp_path):
    config = study(seed=[0, 1], batch=[64, 128])
    for run in config.runs:
        noisy = run.batch == 128 or run.seed == 1
        quiet = maker.beside(others_share=0.5 * noisy)
        took = {"timing": maker.timed(run, 8.0), "stopped": "2026-01-01T00:00:10+00:00", "quiet": quiet}
        maker.write(tmp_path, config.settings(run), **took, **maker.used(run))
    damaged = tmp_path / replace(config.runs[0], seed=2).path
    damaged.parent.mkdir()
    damaged.write_text("{")
    found = records.below([tmp_path])
    assert sorted((s.case.numbers["batch"] * 3, s.quiet) for s in found) == [
        (6, True),
        (7, False),
        (7, False),
    ]


def test_the_copy_that_a_run_keeps_of_its_record_is_no_other_sample(tmp_path):
    config = study()
    run = config.runs[0]
    took = {"timing": maker.timed(run, 8.0), "stopped": "2026-01-01T00:00:10+00:00"}
    maker.write(tmp_path, config.settings(run), **took, **maker.used(run))
    copy = tmp_path / run.folder / "checkpoint" / finished.KEPT
    copy.mkdir(parents=True)
    shutil.copy(tmp_path / run.path, copy)
    assert len(records.below([tmp_path])) == 1


def test_job_groups_are_those_of_the_site_file_that_the_last_call_used(tmp_path, monkeypatch):
    monkeypatch.setattr("ketscale.jobs.slurm.queue.available", lambda folder: True)
    monkeypatch.chdir(tmp_path)
    config = study()
    of_workflow = Path("checkout/profiles/slurm/site.yaml")
    of_workflow.parent.mkdir(parents=True)
    of_workflow.write_text("limits: [{minutes: 3, memory_mb: 100}]\n")
    assert not call._places(config, Path())[1](config.runs[0])
    driver._write(driver.Call(str(Path("checkout/Snakefile").absolute()), None, None, "", None))
    assert call._places(config, Path())[1](config.runs[0])


def test_places():
    config = study(qubits=[2, 4, 6], batch=[16, 64], seed=[0, 1])
    settings = {(run.size[1], run.batch, run.seed): config.settings(run) for run in config.runs}

    def place(wanted, *known):
        return Costs([sample(settings[one], 1e-3) for one in known]).place(known_case(settings[wanted]))

    ends = [(q, b, 0) for q in "26" for b in (16, 64)]
    assert place(("2", 16, 1), *ends) == "repeat"
    assert place(("4", 64, 0), *ends) == "within"
    assert place(("4", 64, 0), *ends[:2]) == "beyond"
    assert place(("2", 16, 1), *ends[2:]) == "beyond"


def trained_together(folder, config, runs, share_s, steps=40):
    """Write the records of a cohort, in which each run takes so many seconds of all."""
    for run in runs:
        timing = {**maker.timed(run, 1.0, steps), "train_s": 0.0, "first_step_s": None, "steps_s": 0.0}
        nothing = {"median_s": None, "q25_s": None, "q75_s": None, "mean_s": None, "count": 0}
        timing |= {"step": nothing, "epoch_s": None, "samples_per_s": None}
        maker.write(
            folder, config.settings(run),
            timing=timing, stopped="2026-01-01T00:10:00+00:00", node_hours=share_s / 3600,
            cohort=[f"{one.protocol}/seed{one.seed}" for one in runs if one != run], **maker.used(run),
        )  # fmt: skip


def quality(seeds, **axes):
    return study(protocol="quality", seed=list(range(seeds)), **axes)


def of_a_cohort(costs, settings):
    """The forecasts of runs that one process trains."""
    known = costs.parts((one, len(settings)) for one in settings)
    return {one.run: made.of(one.run) for one, made in zip(settings, known, strict=True)}


def test_runs_of_a_cohort_teach_and_are_planned_as_one(tmp_path, monkeypatch):
    """One point in a cohort of 8, another one in a cohort of 8 is planned by it, and a missing seed alone costs more."""
    monkeypatch.setattr("ketscale.jobs.slurm.queue.available", lambda folder: True)
    config = quality(8, batch=[64, 128])
    first = [run for run in config.runs if run.batch == 64]
    trained_together(tmp_path / config.results, config, first, 20.0)
    costs = Costs.of(tmp_path / config.results)
    made = Call(costs, config, [run for run in config.runs if run not in first], tmp_path).forecasts()
    assert costs.records == 8 and len(made) == 8
    of_all = made[config.runs[-1]]
    assert of_all.members == 8 and of_all.wall_s.middle == pytest.approx(8 * of_all.seconds.middle)
    assert of_all.node_hours.middle == pytest.approx(of_all.seconds.middle / 3600)
    # The same point, as if the records were of other seeds.
    again = of_a_cohort(costs, [config.settings(run) for run in first])
    assert {one.place for one in again.values()} == {"repeat"}
    # 40 steps took 20 s of a run.
    assert again[first[0]].step_s.middle == pytest.approx(0.5, rel=0.05)
    one = Call(costs, config, first[:1], tmp_path).forecasts()[first[0]]
    assert one.members == 1 and 1.5 < one.seconds.middle / again[first[0]].seconds.middle < 8


def test_a_cohort_is_learned_beside_runs_alone(tmp_path):
    """What a run takes alone and its share of eight, of another batch, tell by how much it falls."""
    config = quality(9, batch=[64, 128])
    settings = [config.settings(run) for run in config.runs]
    of = {batch: [one for one in settings if one.run.batch == batch] for batch in (64, 128)}

    def shared(one, members, pace_s):
        at = replace(sample(one, pace_s), case=records.case(one.content, one.sizes, "a machine", members))
        return replace(at, costs={name: cost for name, cost in at.costs.items() if name != "step_s"})

    known = [sample(of[64][0], 0.08), *(shared(one, 8, 0.01) for one in of[64][1:]), sample(of[128][0], 0.08)]
    found = of_a_cohort(Costs(known), of[128][1:])[of[128][1].run]
    # A step of all is as long as one: nothing is left of the half that is expected before there are records.
    assert found.step_s.middle == pytest.approx(0.01, rel=0.3) and found.step_s.low < 0.01 < found.step_s.high
