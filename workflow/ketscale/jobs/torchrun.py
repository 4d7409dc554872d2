"""torchrun as runs start it, `python -m ketscale.jobs.torchrun`: the same program, ready half a second sooner."""

import os

from ketscale.process import TORCHRUN, end, kept_for_good

if __name__ == "__main__":
    os.environ[TORCHRUN] = str(os.getpid())
    with kept_for_good():
        from torch.distributed.run import main
    main()
    end(0)
