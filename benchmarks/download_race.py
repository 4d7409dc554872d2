"""`python -m benchmarks.download_race S001`: do processes that download EEGMMIDB at once destroy each other's files?

Claim 0.16, by MNE's public downloader, pointed at a server of this machine. S001 is a folder with the subject's runs 4, 8
and 12. Each repeat has a home directory of its own, empty, into which two processes fetch at once; or one process first,
and then two.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

FILES = "files/eegmmidb/1.0.0"
RUNS = (4, 8, 12)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing of each request."""


def fetched(url: str, wanted: dict[str, int], home: str, start: Barrier, ends: Queue[str]) -> None:
    """Fetch the files as the published code does, once all processes are ready; put what failed, or nothing, in `ends`."""
    os.environ["HOME"] = os.environ["_MNE_FAKE_HOME_DIR"] = home
    import mne
    import pooch
    from mne.datasets import eegbci

    mne.set_log_level("ERROR")
    pooch.get_logger().setLevel("ERROR")
    start.wait()
    try:
        paths = eegbci.load_data(1, list(RUNS), base_url=url, update_path=True)
        sizes = {Path(path).name: Path(path).stat().st_size for path in paths}
        ends.put("" if sizes == wanted else f"files of other sizes: {sizes}")
    except Exception as error:  # Whatever a downloader raises is a failure of this repeat.
        ends.put(f"{type(error).__name__}: {error}")


def at_once(processes: int, url: str, wanted: dict[str, int], home: str) -> list[str]:
    """What failed in each of the processes that fetch at the same time."""
    context = multiprocessing.get_context("spawn")
    start, ends = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=fetched, args=(url, wanted, home, start, ends)) for _ in range(processes)
    ]
    for process in started:
        process.start()
    values = [ends.get() for _ in started]
    for process in started:
        process.join()
    return [each for each in values if each]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of S001R04.edf, S001R08.edf and S001R12.edf")
    parser.add_argument("--repeats", type=int, default=20)
    inputs = parser.parse_args(arguments)
    expected = {f"S001R{run:02d}.edf": 0 for run in RUNS}
    for name in expected:
        if not (inputs.folder / name).is_file():
            parser.error(f"{inputs.folder / name}: no such file; give the folder of subject S001 of EEGMMIDB")
        expected[name] = (inputs.folder / name).stat().st_size
    with tempfile.TemporaryDirectory() as root:
        served = Path(root, "served")
        (served / FILES).mkdir(parents=True)
        (served / FILES / "S001").symlink_to(inputs.folder.resolve())
        handler = functools.partial(_Silent, directory=str(served))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/{FILES}/"
            for name, counts in (("two at once", (2,)), ("one, then two", (1, 2))):
                failures: list[str] = []
                failed = 0
                for repeat in range(inputs.repeats):
                    home = Path(root, f"{len(counts)}-{repeat}")
                    home.mkdir()
                    values = [each for count in counts for each in at_once(count, url, expected, str(home))]
                    failed += bool(values)
                    failures += values
                line = f"{name}: {failed} of {inputs.repeats} repeats failed"
                print(line, *sorted(set(failures)), sep="\n  ", flush=True)
            server.shutdown()


if __name__ == "__main__":
    main()
