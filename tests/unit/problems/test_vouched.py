"""What a run left is taken only where its own record vouches for it: models and predictions."""

import hashlib
import io
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ketscale
from ketscale.errors import UserError
from ketscale.grid import HISTORY, PREDICTIONS, RECORD
from ketscale.measure import form
from ketscale.problems import library, models
from tests import record_maker as maker

CONFIG = maker.config(
    one=maker.study(model="mlp", qubits=0, layers=0, simulator="none", protocol="quality", seed=[0, 1])
)
SETTINGS = [CONFIG.settings(run) for run in CONFIG.runs]
# Readers of a file by the folder of its run.
READERS = {models.WEIGHTS: ketscale.load, PREDICTIONS: ketscale.predictions}
of_every_file = pytest.mark.parametrize("name", READERS)


def digest(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def runs(tmp_path):
    """The folders of two seeds, as training leaves them."""
    folders = []
    for settings in SETTINGS:
        torch.manual_seed(settings.run.seed)
        arguments = {"inputs": 4, "outputs": 2}
        trained = SimpleNamespace(
            model=library.construct("mlp", **arguments), arguments=arguments, preprocessing=None
        )
        buffer = io.BytesIO()
        np.savez(buffer, outputs=np.full((5, 2), settings.run.seed))
        files = {models.WEIGHTS: models.saved(settings, trained), PREDICTIONS: buffer.getvalue()}
        named = {HISTORY: digest(maker.NO_EPOCHS.encode())}
        folder = tmp_path / settings.run.folder
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
            named[name] = digest(content)
        maker.write(tmp_path, settings, files=named)
        folders.append(folder)
    return folders


def refused(folder, name, why):
    """Assert that a file is refused in one line that names it, however it is asked for."""
    for asked in (folder, folder / RECORD, folder / name):
        with pytest.raises(UserError, match=why) as error:
            READERS[name](asked)
        assert str(error.value).count(name) == 1 and "\n" not in str(error.value)
        assert str(folder / name) in str(error.value)
        assert "train" in str(error.value)


def forged(folder, seed, **changes):
    """Put a record into a folder, with the right digest of whatever it says."""
    (folder / RECORD).write_text(maker.sealed(maker.of(SETTINGS[seed], **changes)))


def test_what_a_run_left_is_read_by_folder_record_or_file(runs, tmp_path):
    elsewhere = tmp_path / "mine"
    shutil.copytree(runs[1], elsewhere)
    for folder in (runs[1], elsewhere):
        for asked in ("", RECORD, models.WEIGHTS):
            assert ketscale.load(folder / asked).state_dict()
        for asked in ("", RECORD, PREDICTIONS):
            assert ketscale.predictions(folder / asked)["outputs"].tolist() == [[1, 1]] * 5
    # By itself, a model has its own digest.
    (tmp_path / "alone").mkdir()
    shutil.copy(runs[1] / models.WEIGHTS, tmp_path / "alone")
    assert ketscale.load(tmp_path / "alone").state_dict()


@of_every_file
def test_another_runs_file_is_refused(runs, name):
    shutil.copy(runs[1] / name, runs[0] / name)
    refused(runs[0], name, f"{name}: is not the one that the run wrote: .* of another run")


@of_every_file
def test_a_record_of_another_version_or_without_the_file_vouches_for_nothing(runs, name):
    forged(runs[0], 0, schema=form.SCHEMAS[0] - 1)
    refused(runs[0], name, "its record has schema")
    forged(runs[0], 0)
    refused(runs[0], name, f"{name}: is not in its record")


def test_a_model_of_other_settings_than_its_records_is_refused(runs, tmp_path):
    """A record may name another run's model, with the right digest."""
    shutil.copy(runs[1] / models.WEIGHTS, runs[0] / models.WEIGHTS)
    content = (runs[0] / models.WEIGHTS).read_bytes()
    forged(runs[0], 0, files={HISTORY: digest(maker.NO_EPOCHS.encode()), models.WEIGHTS: digest(content)})
    refused(runs[0], models.WEIGHTS, "is the model of another run, .*seed1")
    shutil.copytree(runs[0], tmp_path / "mine")
    refused(tmp_path / "mine", models.WEIGHTS, "is the model of another run, .*seed1")


def test_without_a_record_a_runs_folder_has_its_own_model_and_no_predictions(runs):
    for folder in runs:
        (folder / RECORD).unlink()
    assert ketscale.load(runs[0]).state_dict()
    refused(runs[0], PREDICTIONS, f"there is no {RECORD} beside it")
