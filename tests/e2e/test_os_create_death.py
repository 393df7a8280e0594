"""A create whose warm sandbox dies before anything has run in it takes another one."""

import concurrent.futures
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from execd_case import ExecdCase  # noqa: E402
import sandpool_test as t  # noqa: E402
from sandpool_test import main  # noqa: E402

WARM = 16
TRIES = 8  # of os_create.c
BODY = {"image": {"uri": "python:3.11"}, "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"cpu": "500m", "memory": "128Mi"}, "timeout": 300,
        "metadata": {"kept": "yes"}, "env": {"KEPT": "too"}}


def started(pid):
    """Of processes, in the order of their birth."""
    return int(t.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19] or 0)


def quietly(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Still:
    """Stops the sandboxes' first processes, those too that come later, once they are idle."""

    GROWN_UP_S = 0.3

    def __init__(self, daemon):
        self.daemon = daemon
        self.seen = {}  # pid: when
        self.stopped = []
        self.lock = threading.Lock()
        self.over = threading.Event()

    def look(self, age):
        now = time.monotonic()
        with self.lock:
            for pid in self.daemon.inits():
                if now - self.seen.setdefault(pid, now) >= age and pid not in self.stopped:
                    quietly(pid, signal.SIGSTOP)
                    self.stopped.append(pid)

    def watch(self):
        while not self.over.wait(0.05):
            self.look(self.GROWN_UP_S)

    def __enter__(self):
        self.look(0)
        self.stopped.sort(key=started)
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def kill_oldest(self):
        with self.lock:
            if self.stopped:
                pid = self.stopped.pop(0)
                self.seen[pid] = float("inf")
                quietly(pid, signal.SIGKILL)

    def go_on(self):
        self.over.set()
        self.thread.join()
        for pid in self.stopped:
            quietly(pid, signal.SIGCONT)

    def __exit__(self, *_):
        self.go_on()


class Deaths(ExecdCase):
    pools = {"default": {"max_idle": WARM, "max_lease": "10m", "images": ["*"],
                         "expiry_jitter_percent": 0,
                         "limits": {"memory": "256MiB", "pids": 128, "tmp": "16MiB"}}}

    def create(self):
        answer = self.ask("POST", "/v1/sandboxes", BODY, timeout=60)
        if answer.status == 202:
            self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{answer.json['id']}")
        return answer

    def deaths(self):
        return self.daemon.log().count("sandbox died before its use")

    def create_with_deaths(self, wanted):
        """Every warm one stands still, and so does what replaces it, so that the entrypoint of none
        can start; the oldest are killed one after the other, which is also about the order in which
        they are taken, until `wanted` of those that were taken have died. The rest go on then."""
        self.daemon.wait_settled(timeout=30)
        before = self.deaths()
        with Still(self.daemon) as still, concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.create)
            t.wait_until(self.leased, 20, "one is taken")
            while not answer.done() and self.deaths() - before < min(wanted, TRIES - 1):
                self.kill_next(still, answer)
            while not answer.done() and wanted == TRIES:
                self.kill_next(still, answer)
            still.go_on()
            return answer.result(60), self.deaths() - before

    def kill_next(self, still, answer):
        """And wait for what comes of it, in case that one was taken."""
        seen = self.deaths()
        still.kill_oldest()
        end = time.monotonic() + 0.5 * t.SLOW_FACTOR
        while time.monotonic() < end and not answer.done() and self.deaths() == seen:
            time.sleep(0.01)

    def check_usable(self, answer):
        self.assertEqual(answer.status, 202, answer.body)
        uuid = answer.json["id"]
        self.assertEqual(answer.json["metadata"], {"kept": "yes"})
        endpoint = self.ask("GET", f"/v1/sandboxes/{uuid}/endpoints/44772").json
        root = "/" + endpoint["endpoint"].partition("/")[2]
        output = self.ask("POST", root + "/command", {"command": "echo $KEPT"},
                          headers=endpoint["headers"])
        self.assertIn(b'"text":"too"', output.body)
        # Those that died are nobody's, and are not listed.
        listed = self.ask("GET", "/v1/sandboxes").json["items"]
        self.assertIn(uuid, [item["id"] for item in listed])
        self.assertEqual(len(listed), len(self.leased()))

    def test_one_death(self):
        answer, deaths = self.create_with_deaths(1)
        self.assertEqual(deaths, 1)
        self.check_usable(answer)

    def test_as_many_as_it_tries_but_one(self):
        answer, deaths = self.create_with_deaths(TRIES - 1)
        self.assertEqual(deaths, TRIES - 1)
        self.check_usable(answer)

    def test_all_that_it_tries(self):
        answer, deaths = self.create_with_deaths(TRIES)
        self.assertEqual(deaths, TRIES - 1, "the last one is no further try")
        self.assertEqual(answer.status, 503, answer.body)
        self.assertEqual(answer.json["code"], "SANDPOOL::POOL_ACQUIRE_FAILED")
        self.assertIn(f"{TRIES} sandboxes", answer.json["message"])
        self.assertEqual(self.leased(), set())

    def test_a_program_that_cannot_be_started_is_no_death(self):
        before = self.deaths()
        answer = self.ask("POST", "/v1/sandboxes", {**BODY, "entrypoint": ["/none"]})
        self.assertEqual((answer.status, answer.json["code"]),
                         (500, "DOCKER::SANDBOX_START_FAILED"))
        self.assertEqual(self.deaths(), before)

    def test_creates_while_warm_ones_are_killed(self):
        before = self.deaths()
        over = threading.Event()

        def kill():
            dice = random.Random(7)
            while not over.is_set():
                # Stopped first, so that a create meets one in time.
                chosen = [pid for pid in self.daemon.inits() if dice.random() < 0.2]
                for pid in chosen:
                    quietly(pid, signal.SIGSTOP)
                time.sleep(0.02)
                for pid in chosen:
                    quietly(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for _ in range(40):
                answer = self.create()
                self.assertEqual(answer.status, 202, answer.body)
                self.ask("DELETE", f"/v1/sandboxes/{answer.json['id']}")
        finally:
            over.set()
            killer.join()
        self.assertGreater(self.deaths(), before, "none was met: this has shown nothing")


del ExecdCase
if __name__ == "__main__":
    main()
