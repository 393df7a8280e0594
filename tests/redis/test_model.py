"""Random histories of supervisors, clients and faults, and what must hold in every one (model.py).

Four kinds by turns: calm; messages that get lost, doubled and late; crashes and absences too; and a
store that fails over with writes lost, is emptied, has keys deleted and overwritten.

    SP_SEEDS=1000 SP_SEED=200 tests/redis/test_model.py    seeds 200…1199
    SP_LOG=1000                                             more of the calls before a failure

What is checked: no sandbox is bound, held or given out by an intact directory twice; nothing with
remaining <= minimum and nothing of a dead host is given; no command ends what nobody gave up; an old
incarnation and an old seq change nothing; shares are never given out beyond what is owed; live tickets
are served in their order; two ticks after the faults end the directory says what the supervisors
have, soon after that the pool is full again; and when all is released nothing but the meta is left.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import collections  # noqa: E402

import model  # noqa: E402
from redis_case import FunctionCase  # noqa: E402
from sandpool_test import main  # noqa: E402

FIRST = int(os.environ.get("SP_SEED", "0"))
COUNT = int(os.environ.get("SP_SEEDS", "200"))


class Model(FunctionCase):
    def test_random_histories(self):
        sums = collections.Counter()
        for seed in range(FIRST, FIRST + COUNT):
            with self.subTest(seed=seed):
                sums.update(model.run(self.redis, seed))
        print(f"seeds {FIRST}…{FIRST + COUNT - 1}: {dict(sums)}", flush=True)
        if COUNT >= 40:  # the world is not asleep
            for what in ("calls", "made", "held", "clients", "fenced"):
                self.assertGreater(sums[what], 0, what)


class ModelOnCluster(Model):
    cluster = True

    def test_random_histories(self):
        for seed in range(FIRST, FIRST + min(COUNT, 8)):
            with self.subTest(seed=seed):
                model.run(self.redis, seed)


if __name__ == "__main__":
    main()
