"""JSON of damaged files: whatever is wrong with it, its readers say that it cannot be used."""

import pytest

from ketscale import cli, strict_json
from ketscale.jobs import locks, supervise
from ketscale.jobs.prepared import features_hash

DAMAGED = ["", "{", "[" * 100_000, '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": -Infinity}']


def test_json_is_read_as_by_python():
    assert strict_json.loads(b'{"a": [1, 2.5, null, {"b": "\\u00e9"}]}') == {"a": [1, 2.5, None, {"b": "é"}]}


def test_what_is_not_json_is_one_kind_of_error_and_says_nothing_in_files_for_people(tmp_path, capsys):
    for text in DAMAGED:
        with pytest.raises(ValueError, match=r"Expecting|recursion|twice|not a JSON number"):
            strict_json.loads(text)
        for name, read, result in (
            (supervise.NOTE, supervise.read_note, {}),
            (locks.HOLDER, locks.last, None),
            ("features.json", lambda folder: features_hash(folder / "features.json"), None),
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
            assert read(tmp_path) == result
        # An empty option is none.
        assert cli.main(["report", "--study", text or " "]) == 2
        assert "--study" in capsys.readouterr().err
