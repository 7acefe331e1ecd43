"""Tests that torch has for its own backends, with the backend `fusewire`: three ranks on the CPU.

    python tests/torch_own.py [NAME..]

Left out are those that need GPUs or a fourth rank, and those of what gloo alone has: receives from anybody, monitored barriers.
"""

import os
import sys
import tempfile
import unittest

# For its gates: what runs on the CPU.
os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())

import fusewire.torch  # noqa: E402, F401: registers the backend
from torch.testing._internal.distributed import distributed_test as theirs  # noqa: E402

theirs.BACKEND = "fusewire"

NAMES = """
    DistributedDataParallelCPU DistributedDataParallelCPU_grad_is_view all_gather all_gather_coalesced_complex all_gather_coalesced_full_group
    all_gather_coalesced_simple all_gather_coalesced_with_empty all_gather_complex all_gather_full_group all_gather_object_default_pg
    all_gather_object_subgroup all_reduce_coalesced_full_group_max all_reduce_coalesced_full_group_min all_reduce_coalesced_full_group_product
    all_reduce_coalesced_full_group_sum all_reduce_coalesced_max all_reduce_coalesced_max_complex_unsupported all_reduce_coalesced_min
    all_reduce_coalesced_product all_reduce_coalesced_sum all_reduce_complex_unsupported_ops all_reduce_full_group_max all_reduce_full_group_min
    all_reduce_full_group_product all_reduce_full_group_sum all_reduce_max all_reduce_min all_reduce_product all_reduce_sum all_reduce_sum_async
    all_reduce_sum_complex barrier barrier_full_group batch_isend_irecv_gloo batch_isend_irecv_gloo_tags broadcast broadcast_full_group
    ddp_logging_data_cpu destroy_full_group destroy_group gather gather_checks gather_full_group get_rank get_rank_size_full_group
    get_rank_size_group irecv isend isend_autograd_profiler isend_torch_profiler reduce_full_group_max reduce_full_group_min
    reduce_full_group_product reduce_full_group_sum reduce_max reduce_min reduce_product reduce_sum reduce_sum_twice scatter scatter_checks
    scatter_complex scatter_full_group scatter_object_list send_recv send_recv_autograd_profiler send_recv_torch_profiler send_recv_with_tag
    send_recv_with_tag_autograd_profiler send_recv_with_tag_torch_profiler
""".split()


class Own(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    suite = unittest.TestSuite(Own("test_" + name) for name in sys.argv[1:] or NAMES)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    # A test that is skipped is no test that passed.
    sys.exit(not result.wasSuccessful() or bool(result.skipped))
