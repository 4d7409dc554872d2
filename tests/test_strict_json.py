"""JSON of damaged files: whatever is wrong with it, its readers say that it cannot be used."""

import pytest

from ketscale import cli, strict_json
from ketscale.errors import UserError
from ketscale.jobs import prepared, supervise
from ketscale.jobs.ownership import lease, signs
from ketscale.problems import fetching, store
from ketscale.training import checkpoint

DAMAGED = ["", "{", "[" * 100_000, '{"a": ' * 100_000, '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": -Infinity}']
KEY = "a" * 64


@pytest.fixture(params=DAMAGED, ids=lambda text: text[:20])
def damaged(request):
    return request.param


def test_what_is_not_json_is_one_kind_of_error(damaged):
    with pytest.raises(ValueError, match=r"Expecting|recursion|twice|not a JSON number"):
        strict_json.loads(damaged)


def test_json_is_read_as_by_python():
    assert strict_json.loads(b'{"a": [1, 2.5, null, {"b": "\\u00e9"}]}') == {"a": [1, 2.5, None, {"b": "é"}]}


@pytest.mark.parametrize(
    "name, read, found",
    [
        (signs.WAITING, signs.read_waiting, None),
        (supervise.NOTE, supervise.read_note, {}),
        ("lease/1.json", lease.read, {}),
        ("features.json", lambda folder: prepared.features_hash(folder / "features.json"), None),
    ],
)
def test_a_damaged_file_for_people_says_nothing(tmp_path, damaged, name, read, found):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(damaged)
    assert read(tmp_path) == found


@pytest.mark.parametrize(
    "name, read",
    [
        (f"checkpoint/{KEY[:16]}.pt", lambda path: checkpoint.load(path.parents[1], KEY)),
        ("features.json", lambda path: store.opened(path, ["a"], 1)),
        ("fetched.json", fetching.folder_of),
    ],
)
def test_a_damaged_file_that_a_run_needs_is_named(tmp_path, damaged, name, read):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{damaged}\n")
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_damaged_option_is_named(damaged, capsys):
    # An empty option is none.
    assert cli.main(["report", "--study", damaged or " "]) == 2
    assert "--study: not JSON (" in capsys.readouterr().err
