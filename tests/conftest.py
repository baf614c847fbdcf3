"""What holds for every test: no network, one thread, no deadlines, shapes that are checked.

Tests run on one thread, and what they start too: side by side they would wait for each other.
TPATCHER_TEST_THREADS=2 runs them on two, to see that no result depends on it.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["COLUMNS"] = "300"  # a wide terminal: what is printed is not broken into lines
os.environ["OMP_NUM_THREADS"] = os.environ.get("TPATCHER_TEST_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a thread that waits leaves its core to others

import torch
from hypothesis import settings

from tests import shapes

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
shapes.install()
settings.register_profile("busy", deadline=None)  # a busy machine is slow, and no test's fault
settings.load_profile("busy")
