"""`python -m goodput_world.engine serve MODEL [flags]`: stands in for `vllm serve` on a simulated GPU."""

from __future__ import annotations

import sys

from goodput_world.engine.main import main

sys.exit(main(sys.argv[1:]))
