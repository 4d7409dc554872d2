"""A program that has a script run in a process that is forked from the server of the tests."""

import json
import os
import re
import signal
import socket
import sys

# The server's address, the script, what is to be its Python, and the variables that the server was started with: what is
# right stands here in the programs that `tests.process.forks` writes.
SERVER, SCRIPT, PYTHON, FIXED = "", "", "", {}
# Variables of a rank that mpirun, torchrun or srun has started.
OF_A_RANK = re.compile("PMIX_(?!MCA_)|OMPI_COMM_|TORCHELASTIC_|SLURM_|(LOCAL_)?RANK$")
PASSED_ON = (signal.SIGINT, signal.SIGTERM)

if any(os.environ.get(name, value) != value for name, value in FIXED.items()) or any(
    map(OF_A_RANK.match, os.environ)
):
    os.execv(sys.executable, [sys.executable, SCRIPT, *sys.argv[1:]])

asked = {
    "script": SCRIPT,
    "python": PYTHON,
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "variables": dict(os.environ),
    "cores": sorted(os.sched_getaffinity(0)),
}
text = json.dumps(asked).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect(SERVER)
    socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(text)
    answers = server.makefile()
    pid = int(answers.readline())
    for signum in PASSED_ON:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, lambda signum, frame: os.kill(pid, signum))
    server.sendall(b".")
    status = int(answers.readline())
if status < 0:
    for signum in (*PASSED_ON, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
