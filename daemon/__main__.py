"""`python -m shmreplay.daemon`, the same as the console script shmreplayd."""

import sys

from shmreplay.daemon.main import main

sys.exit(main())
