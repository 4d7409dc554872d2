"""The model that a run left is taken only where its own record vouches for it."""

import hashlib
import shutil
from types import SimpleNamespace

import pytest
import torch

import ketscale
from ketscale.errors import UserError
from ketscale.grid import HISTORY, RECORD
from ketscale.measure import form
from ketscale.problems import library, models
from tests import record_maker as maker

CONFIG = maker.config(
    one=maker.study(model="mlp", qubits=0, layers=0, simulator="none", protocol="quality", seed=[0, 1])
)
SETTINGS = [CONFIG.settings(run) for run in CONFIG.runs]


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
        content = models.saved(settings, trained)
        named = {HISTORY: digest(maker.NO_EPOCHS.encode())}
        folder = tmp_path / settings.run.folder
        folder.mkdir(parents=True)
        (folder / models.WEIGHTS).write_bytes(content)
        named[models.WEIGHTS] = digest(content)
        maker.write(tmp_path, settings, files=named)
        folders.append(folder)
    return folders


def assert_refused(folder, why):
    """Assert that a model is refused in one line that names it, however it is asked for."""
    for path in (folder, folder / RECORD, folder / models.WEIGHTS):
        with pytest.raises(UserError, match=why) as error:
            ketscale.load(path)
        assert str(error.value).count(models.WEIGHTS) == 1 and "\n" not in str(error.value)
        assert str(folder / models.WEIGHTS) in str(error.value)
        assert "train" in str(error.value)


def forged(folder, seed, **changes):
    """Put a record into a folder, with the right digest of whatever it says."""
    (folder / RECORD).write_text(maker.sealed(maker.of(SETTINGS[seed], **changes)))


def test_a_model_is_read_by_its_folder_record_or_file(runs, tmp_path):
    copy = tmp_path / "mine"
    shutil.copytree(runs[1], copy)
    for folder in (runs[1], copy):
        for path in ("", RECORD, models.WEIGHTS):
            assert ketscale.load(folder / path).state_dict()
    # By itself, too.
    (tmp_path / "alone").mkdir()
    shutil.copy(runs[1] / models.WEIGHTS, tmp_path / "alone")
    assert ketscale.load(tmp_path / "alone").state_dict()


def test_another_runs_model_is_refused(runs):
    shutil.copy(runs[1] / models.WEIGHTS, runs[0] / models.WEIGHTS)
    assert_refused(runs[0], f"{models.WEIGHTS}: is not the one that the run wrote: .* of another run")


def test_a_record_of_another_version_or_without_the_model_vouches_for_nothing(runs):
    forged(runs[0], 0, schema=form.SCHEMAS[0] - 1)
    assert_refused(runs[0], "its record has schema")
    forged(runs[0], 0)
    assert_refused(runs[0], f"{models.WEIGHTS}: is not in its record")


def test_a_model_of_other_settings_than_its_records_is_refused(runs, tmp_path):
    """A record may name another run's model, with the right digest."""
    shutil.copy(runs[1] / models.WEIGHTS, runs[0] / models.WEIGHTS)
    content = (runs[0] / models.WEIGHTS).read_bytes()
    forged(runs[0], 0, files={HISTORY: digest(maker.NO_EPOCHS.encode()), models.WEIGHTS: digest(content)})
    assert_refused(runs[0], "is the model of another run, .*seed1")
    shutil.copytree(runs[0], tmp_path / "mine")
    assert_refused(tmp_path / "mine", "is the model of another run, .*seed1")
    for folder in runs:
        (folder / RECORD).unlink()
    assert_refused(runs[0], "is the model of another run, .*seed1")
