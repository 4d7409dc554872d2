"""Invariant: one record a run, written last and atomically, or none; and one validator says whether it can be trusted."""

import json
import os
from dataclasses import replace

import msgspec
import pytest

from ketscale import files, grid
from ketscale.config import Config
from ketscale.measure import record
from ketscale.problems.registry import FAMILIES
from tests import record_maker as maker

CONFIG = maker.config(one=maker.study(seed=0))
RUN = CONFIG.runs[0]
SETTINGS = CONFIG.settings(RUN)


# A protocol with epochs has metrics too.
EPOCHS = CONFIG.settings(replace(RUN, protocol="quality"))


def made(settings=SETTINGS, **changes):
    return maker.of(settings, **changes)


def check(path, settings=SETTINGS, features=maker.FEATURES):
    return record.check(path, settings, features)


@pytest.fixture
def path(tmp_path):
    """The path of a record, whose history is there."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / grid.HISTORY).write_text(maker.NO_EPOCHS)
    return folder / grid.RECORD


@pytest.mark.parametrize(
    "status, reason", [("completed", None), ("diverged", "NaN at step 3"), ("out_of_memory", "no room")]
)
def test_what_was_written_is_read_and_its_status_is_its_state(path, status, reason):
    record.write(path, SETTINGS, made(status=status, reason=reason))
    found = check(path)
    assert (found.state, found.why) == (status, reason or "")
    assert msgspec.structs.replace(found.record, digest="") == maker.typed(made(status=status, reason=reason))
    assert sorted(os.listdir(path.parent)) == [grid.HISTORY, grid.RECORD]


def limited(run=RUN, **protocol):
    """The settings of the run with a time of 5 s and 12 steps."""
    settings = CONFIG.settings(run)
    given = {"limit_s": 5.0, "steps": 12, "sampled_steps": 0, **protocol}
    content = {**settings.content, "protocol": {**settings.content["protocol"], **given}}
    return replace(settings, protocol=msgspec.convert(content["protocol"], type(settings.protocol)))


def late(**timing):
    """What a record says whose time was over after two steps."""
    steps = {"steps": 2, "train_s": 6.0, **timing}
    return {
        "status": "timed_out", "reason": "its time was over", "losses": [0.5] * min(steps["steps"], 20),
        "timing": {**made()["timing"], **steps}, "stopped": "2026-01-01T00:01:00+00:00",
    }  # fmt: skip


def test_a_run_that_timed_out_is_a_result_with_its_losses_and_times(path):
    median = {"median_s": 2.0, "q25_s": 2.0, "q75_s": 2.0, "mean_s": 2.0, "count": 1}
    rates = {"epoch_s": 10.0, "steps_per_epoch": 5, "samples_per_s": RUN.batch / 2.0}
    settings = limited()
    record.write(path, settings, made(settings, **late(step=median, **rates, steps_s=6.0)))
    found = check(path, settings)
    assert (found.state, found.why) == ("timed_out", "its time was over")
    assert found.record.timing.step.count == 1


@pytest.mark.parametrize(
    "settings, changes",
    [
        (limited(limit_s=None), late()),
        (limited(), late(train_s=4.9)),
        (limited(), late(steps=0)),
        (limited(), late(steps=12)),
        (limited(), {**late(), "losses": [0.5]}),
        (limited(), {**late(), "reason": None}),
        (limited(), {**late(), "weights_hash": "0" * 64}),
    ],
    ids=["no limit", "early", "no step", "finished", "losses", "no reason", "weights"],
)
def test_a_run_that_cannot_have_timed_out_is_refused(path, settings, changes):
    with pytest.raises(ValueError, match=r"it is timed_out|losses of 2 steps"):
        record.write(path, settings, made(settings, **changes))


def test_a_resumed_run_that_timed_out_may_have_trained_little_since(path):
    settings = limited(timed=False)
    record.write(path, settings, made(settings, **late(train_s=0.1), resumed=1))
    assert check(path, settings).state == "timed_out"


def test_a_timed_run_that_went_on_from_a_checkpoint_counts_as_missing(path):
    """Nobody has timed all of it. Earlier versions wrote such records."""
    with pytest.raises(ValueError, match="its times are of the rest alone"):
        record.write(path, SETTINGS, made(resumed=1))
    path.write_text(maker.sealed(made(resumed=1)))
    found = check(path)
    assert (found.state, found.record) == ("missing", None) and "was stopped in between" in found.why
    assert record.outdated(path, SETTINGS, None)


def test_a_record_that_a_run_of_this_version_would_not_have_is_outdated_and_any_other_is_not(path):
    assert not record.outdated(path, SETTINGS, None)  # there is none
    others = ({"schema": 4}, {"config_hash": "0" * 64})
    for text, old in (
        (maker.sealed(made()), False),
        *((maker.sealed({**made(), **o}), True) for o in others),
    ):
        path.write_text(text)
        assert record.outdated(path, SETTINGS, None) == old
    path.write_text(maker.sealed({**made(), "features_hash": "a" * 64}))
    assert not record.outdated(path, SETTINGS, "a" * 64) and record.outdated(path, SETTINGS, "b" * 64)
    # What was edited or damaged is refused; whether it is to be trained again is for people to decide.
    for text in ("", "{", '{"resumed": "x"}', "[]"):
        path.write_text(text)
        assert not record.outdated(path, SETTINGS, None)


def timed(**changes):
    """Timing of a run with a median step of 5 ms, five steps an epoch and the whole batch in each."""
    step = {"median_s": 0.005, "q25_s": 0.004, "q75_s": 0.006, "mean_s": 0.005, "count": 3}
    return made()["timing"] | {
        "step": step, "steps": 3, "steps_per_epoch": 5, "epoch_s": 0.025, "samples_per_s": 200 * RUN.batch,
    } | changes  # fmt: skip


def measured(**figures):
    """The quality of a run whose test metrics are these."""
    right = {"bits": "wA==", "samples": 3, "cases": None} if "accuracy" in figures else None
    return {"epochs": 2, "best_epoch": 1, "chosen": {}, "validation": {}, "test": figures, "right": right}


@pytest.mark.parametrize(
    "changes",
    [
        {"timing": timed()},
        # More samples a second than a century has seconds.
        {
            "timing": timed(
                step=timed()["step"] | {"median_s": 1e-9, "q25_s": 1e-9, "mean_s": 1e-9},
                epoch_s=5e-9,
                samples_per_s=1e9 * RUN.batch,
            )
        },
        # Fewer samples than the batch, as at the end of small data.
        {"timing": timed(samples_per_s=200)},
        {"settings": EPOCHS, "quality": measured(accuracy=2 / 3, auc=None, count=3, confusion=[[1]])},
    ],
    ids=["timed", "fast", "small", "quality"],
)
def test_what_training_measures_is_taken(path, changes):
    settings = changes.pop("settings", SETTINGS)
    record.write(path, settings, made(settings, **changes))
    assert check(path, settings).record


@pytest.mark.parametrize(
    "change, why",
    [
        ({"status": "fine"}, "Invalid enum value 'fine'"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"resumed": -1}, ">= 0"),
        ({"parameters": 2**63}, "<="),
        ({"losses": [0.1] * 21}, "length <= 20"),
        ({"run": None}, "Expected `object`"),
        ({"machine": {}}, "required field"),
        ({"machine": {**made()["machine"], "ranks": [{}]}}, "required field"),
        ({"config": {"run": {}}}, "do not match its config hash"),
        ({"family": "eeg"}, "family"),
        ({"sizes": {"qubits": 5, "layers": 3}}, "sizes"),
        ({"weights_hash": None}, "it is completed"),
        ({"status": "diverged", "reason": None}, "it is diverged"),
        ({"quality": measured()}, "completed epochs and fits have a quality"),
        ({"losses": [0.1]}, "1 losses of 0 steps"),
        ({"machine": {**made()["machine"], "ranks": made()["machine"]["ranks"] * 2}}, "2 of 1 ranks"),
        ({"node_hours": -0.1}, ">= 0"),
        ({"node_hours": 0.1}, "node_hours"),
        ({"gpu_hours": 0.1}, "gpu_hours"),
        ({"parameters": None}, "no number of parameters"),
        ({"stopped": "2025-01-01T00:00:00+00:00"}, ">= 0|node_hours"),
        ({"timing": timed(train_s=1e3)}, "train_s"),
        ({"timing": timed(train_s=1e300)}, "<="),
        ({"timing": timed(epoch_s=0.0025)}, "epoch_s"),
        ({"timing": timed(samples_per_s=300 * RUN.batch)}, "samples_per_s"),
        ({"timing": timed(samples_per_s=0.1)}, "samples_per_s"),
        ({"timing": timed(step=timed()["step"] | {"median_s": 0.0005})}, "quartiles of step"),
        ({"timing": timed(step=timed()["step"] | {"count": 0})}, "quartiles of step"),
        ({"timing": timed(step=made()["timing"]["step"])}, "epoch_s is neither"),
        ({"timing": timed(step=made()["timing"]["step"], epoch_s=None)}, "samples_per_s needs a median step"),
        ({"timing": timed(step=timed()["step"] | {"q75_s": 1e9})}, "times of step"),
        ({"timing": timed(step=timed()["step"] | {"mean_s": 17.0}, epoch_s=85.0)}, "times of step"),
        ({"timing": timed(step=timed()["step"] | {"mean_s": None}, epoch_s=None)}, "quartiles of step"),
        ({"timing": timed(first_step_s=0.04, steps_s=0.0)}, "steps_s, 0 s, is less than the 0.055 s"),
        ({"timing": timed(steps_s=17.0)}, "steps_s and aside_s"),
        ({"timing": timed(aside_s=17.0)}, "steps_s and aside_s"),
        ({"timing": timed(step=timed()["step"] | {"mean_s": 0.0}, epoch_s=0.0)}, "mean of step"),
        ({"timing": timed(step=timed()["step"] | {"count": 4})}, "4 steps .* of 3"),
        (
            {"timing": timed(epoch={"median_s": 1, "q25_s": 1, "q75_s": 1, "mean_s": 1, "count": 1})},
            "times of epoch",
        ),
        ({"timing": timed(first_step_s=1e9)}, "first_step_s"),
        ({"timing": timed(validation_s=17)}, "validation_s"),
        ({"quiet": {**made()["quiet"], "quiet": True, "others_share": 17}}, "it is quiet, though"),
        ({"quiet": {**made()["quiet"], "quiet": True, "oversubscribed": True}}, "it is quiet, though"),
        (
            {"quiet": {**made()["quiet"], "quiet": True, "steal_share": 0.06}},
            "though the hypervisor gave 6% ",
        ),
        ({"quiet": {**made()["quiet"], "quiet": True, "throttled_share": 0.7}}, "though a CPU quota .* 70%"),
        (
            {"quiet": {**made()["quiet"], "quiet": True, "stalled_share": 0.3}},
            "though it stood still for 30%",
        ),
        ({"split": {**made()["split"], "fold": 17}}, "fold 17 is not one of None"),
        ({"split": {**made()["split"], "fold": 3, "folds": 3}}, "fold 3 is not one of 3"),
        ({"split": {**made()["split"], "fold": 0, "folds": 3}}, "has folds, but its workload has no such"),
        (
            {
                "machine": {
                    **made()["machine"],
                    "ranks": [{**made()["machine"]["ranks"][0], "shared_cores": []}],
                }
            },
            "shared_cores",
        ),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_is_neither_written_nor_trusted(path, change, why):
    _refused(path, SETTINGS, change, why)


def by_recording(seed):
    """The settings of a run whose seed chooses the recording that is the test."""
    study = maker.given(one=maker.study(workload="eeg-synthetic", model="hydra", seed=seed))
    eeg = study["workloads"]["eeg-synthetic"] | {"subjects": 1, "trials": 45, "split": "runs"}
    config = Config.of({**study, "workloads": {**study["workloads"], "eeg-synthetic": eeg}}, FAMILIES)
    return config.settings(config.runs[0])


@pytest.mark.parametrize(
    "seed, fold, why",
    [
        (1, 0, "its fold is 0, but seed 1 has number 1 of 3"),
        (5, 0, "its fold is 0, but seed 5 has number 2 of 3"),
        (0, None, "it has no folds, but its workload has such"),
        (1, 1, None),
        (5, 2, None),
    ],
)
def test_the_fold_of_a_record_is_that_of_its_seed(tmp_path, seed, fold, why):
    settings = by_recording(seed)
    split = made()["split"] | {"by": "runs", "fold": fold, "folds": None if fold is None else 3}
    if why is None:
        assert check(maker.write(tmp_path, settings, split=split), settings).state == "completed"
    else:
        path = tmp_path / settings.run.path
        path.parent.mkdir(parents=True)
        (path.parent / grid.HISTORY).write_text(maker.NO_EPOCHS)
        _refused(path, settings, {"split": split}, why)


def test_a_run_whose_data_did_not_fit_in_memory_needs_no_fold(tmp_path):
    settings = by_recording(1)
    path = maker.write(tmp_path, settings, status="out_of_memory", reason="no room")
    assert check(path, settings).state == "out_of_memory"


@pytest.mark.parametrize(
    "quality, why",
    [
        ({"epochs": 1}, "required field"),
        (measured() | {"best_epoch": 2}, "best epoch"),
        (measured(accuracy=17), "accuracy on the test samples is 17"),
        (measured(accuracy=-0.1), "accuracy on"),
        (measured(auc=1.5), "auc on"),
        (measured(accuracy=[1]), "accuracy on"),
        (measured(chance=2), "chance on"),
        (measured(loss=[]), "loss on"),
        (measured(count=0), "count on"),
        (measured(count=1.5), "count on"),
        (measured(accuracy=2 / 3) | {"right": None}, "accuracy on the test samples has no single cases"),
        (measured(accuracy=1 / 3, count=3), "is 0.33.*, but 2 of 3 cases are right"),
        (measured(accuracy=2 / 3, count=4), "but 2 of 3 cases are right"),
        (
            measured(accuracy=1.0, count=3) | {"right": {"bits": "8A==", "samples": 3, "cases": None}},
            "not those of 3 cases",
        ),
        (
            measured(accuracy=1.0, count=3) | {"right": {"bits": "4A==", "samples": 2, "cases": [1, 1, 1]}},
            "of 2 samples",
        ),
        (
            measured(accuracy=1.0, count=3) | {"right": {"bits": "?", "samples": 3, "cases": None}},
            "not base64",
        ),
    ],
    ids=str,
)
def test_metrics_are_in_the_ranges_that_the_family_declares(path, quality, why):
    _refused(path, EPOCHS, {"quality": quality}, why)


def _refused(path, settings, change, why):
    """Nobody can write it, and whoever forges it with its digest is not believed."""
    with pytest.raises(ValueError, match=why):
        record.write(path, settings, made(settings, **change))
    assert not path.exists()
    path.write_text(maker.sealed(made(settings, **change)))
    found = check(path, settings)
    assert (found.state, found.record) == ("refused", None)


def test_an_edited_record_is_refused(path):
    record.write(path, SETTINGS, made(lost_s=3.0))
    path.write_text(path.read_text().replace('"lost_s": 3.0', '"lost_s": 2.0'))
    assert check(path).state == "refused" and "edited or damaged" in check(path).why


def test_a_reader_finds_the_digest_by_itself(path):
    record.write(path, SETTINGS, made())
    written = json.loads(path.read_text())
    digest = written.pop("digest")
    assert digest == grid.config_hash(written)
    # Neither spaces nor the order of the keys are part of it.
    path.write_text(json.dumps({"digest": digest, **written}))
    assert check(path).record


@pytest.mark.parametrize("where", ["at the top", "deep"])
def test_a_key_that_is_given_twice_is_refused(path, where):
    text = maker.sealed(made())
    old = '"resumed": 0' if where == "at the top" else '"data_s": 0.0'
    assert old in text
    path.write_text(text.replace(old, f"{old}, {old}"))
    assert check(path).state == "refused" and "is given twice" in check(path).why


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_nan_is_no_number_of_a_record(path, number):
    with pytest.raises(ValueError, match=r"not JSON compliant"):
        record.write(path, SETTINGS, made(losses=[number]))
    assert not path.exists()


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(path, text):
    path.write_text(maker.sealed(made(lost_s=3.5)).replace("3.5", text))
    assert check(path).state == "refused"


def test_a_part_that_is_missing_is_named(path):
    whole = made()
    del whole["timing"]["step"]
    with pytest.raises(ValueError, match=r"step.*\$\.timing"):
        record.write(path, SETTINGS, whole)


@pytest.mark.parametrize(
    "damage, why",
    [
        (lambda history: history.unlink(), "its history.csv is missing"),
        (lambda history: history.write_text("epoch,step\n0,1\n"), "its history.csv is not the one"),
        (lambda history: (history.unlink(), history.mkdir()), "its history.csv cannot be read"),
    ],
)
def test_a_record_vouches_for_its_history(path, damage, why):
    record.write(path, SETTINGS, made())
    damage(path.parent / grid.HISTORY)
    assert check(path).state == "refused" and why in check(path).why


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{} {}", b"[" * 100_000])
def test_a_damaged_file_is_refused(path, content):
    path.write_bytes(content)
    assert check(path).state == "refused" and "cannot be read" in check(path).why


def test_what_cannot_be_opened_is_refused(path):
    path.mkdir()
    assert check(path).state == "refused" and "Is a directory" in check(path).why


def test_an_absent_record_is_missing(path):
    assert check(path) == record.Checked("missing")


@pytest.mark.parametrize("content", ['{"schema": 3}', "[1]", "{}", "3"])
def test_a_record_of_another_version_is_stale(path, content):
    path.write_text(content)
    assert check(path).state == "stale" and "this version reads 8" in check(path).why


def test_a_record_of_another_run_is_refused(path):
    other = CONFIG.settings(replace(RUN, seed=1))
    record.write(path, other, made(other))
    assert check(path).state == "refused" and "axes in the record" in check(path).why
    assert check(path, other).state == "completed"


def test_a_record_of_other_settings_is_stale(path):
    record.write(path, SETTINGS, made())
    other = replace(SETTINGS, protocol=msgspec.structs.replace(SETTINGS.protocol, learning_rate=0.5))
    found = check(path, other)
    assert found.state == "stale" and "other settings" in found.why


def test_a_record_of_other_features_is_stale_where_those_in_use_are_known(path):
    record.write(path, SETTINGS, made())
    found = check(path, features="0" * 64)
    assert found.state == "stale" and "other features" in found.why
    assert check(path, features=None).record


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    files.write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space"):
        files.write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["metrics.json"]
