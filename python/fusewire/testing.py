"""For tests: runs a function on several ranks of this host, each a process of its own."""

import multiprocessing
import os
import pathlib
import queue
import tempfile
import time
import traceback


def _rank(rank, size, store, results, body, arguments, environment):
    os.environ.update(FUSEWIRE_RANK=str(rank), FUSEWIRE_WORLD_SIZE=str(size), FUSEWIRE_FILE=store, **environment)
    try:
        results.put((rank, None, body(*arguments)))
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
        raise


def run(size, body, *arguments, limit=120, environment=()):
    """What ``body(*arguments)`` gave on each of ``size`` ranks; fails with the first failure of one.

    ``body`` is a function of a module, and begins with ``fusewire.World()``. ``limit``: seconds for all of it.
    """
    spawn = multiprocessing.get_context("spawn")
    results, gave = spawn.Queue(), {}
    with tempfile.TemporaryDirectory() as folder:
        store = str(pathlib.Path(folder) / "store")
        common = (store, results, body, arguments, dict(environment))
        processes = [spawn.Process(target=_rank, args=(rank, size, *common)) for rank in range(size)]
        for process in processes:
            process.start()
        ends = time.monotonic() + limit
        try:
            while len(gave) < size:
                try:
                    rank, failure, result = results.get(timeout=0.2)
                    assert failure is None, f"rank {rank}:\n{failure}"
                    gave[rank] = result
                except queue.Empty:
                    missing = sorted(set(range(size)) - set(gave))
                    ended = {rank: processes[rank].exitcode for rank in missing if processes[rank].exitcode}
                    assert not ended, f"ranks ended without a result, by their exit codes: {ended}"
                    assert time.monotonic() < ends, f"ranks {missing} were not done after {limit} s"
            for process in processes:
                process.join(limit)
                assert process.exitcode == 0, f"a rank ended with {process.exitcode}"
        finally:
            for process in processes:
                process.kill()
    return [gave[rank] for rank in range(size)]
