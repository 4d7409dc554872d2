"""A file of brackets, deeper than Python's reader of JSON goes, is damaged like any other."""

import pytest

from ketscale.errors import UserError
from ketscale.jobs import prepared, supervise
from ketscale.jobs.ownership import lease, signs
from ketscale.problems import fetching, store
from ketscale.training import checkpoint

BRACKETS = "[" * 100_000


@pytest.mark.parametrize(
    "name, read, found",
    [
        ("features.json", lambda folder: prepared.features_hash(folder / "features.json"), None),
        (supervise.NOTE, supervise.read_note, {}),
        (signs.WAITING, signs.read_waiting, None),
        ("lease/1.json", lease.read, {}),
    ],
)
def test_what_status_reads_is_unknown(tmp_path, name, read, found):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(BRACKETS)
    assert read(tmp_path) == found


@pytest.mark.parametrize(
    "name, read",
    [
        ("features.json", lambda folder: store.opened(folder / "features.json", (), 1)),
        ("fetched.json", lambda folder: fetching.folder_of(folder / "fetched.json")),
        (f"{checkpoint.FOLDER}/key.pt", lambda folder: checkpoint.load(folder, "key")),
    ],
)
def test_what_a_run_needs_is_refused_by_name(tmp_path, name, read):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{BRACKETS}\n")
    with pytest.raises(UserError, match=name):
        read(tmp_path)
