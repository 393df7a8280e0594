"""Reload: all or nothing, sizes at once, idle sandboxes of an old shape retired, leases kept."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Case, Daemon, main, wait_until  # noqa: E402



class Reload(Case):
    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        self.daemon = Daemon({"pools": {"default": {"max_idle": 2}}})
        self.daemon.start()
        self.addCleanup(self.daemon.remove)
        self.addCleanup(self.daemon.kill)

    def reload(self):
        return self.daemon.request("POST", "/v1/reload")

    def finish(self):
        self.daemon.wait_settled()
        self.daemon.stop()

    def test_sizes_apply_within_a_tick_b208(self):
        self.daemon.write_config({"pools": {"default": {"max_idle": 4}}})
        self.assertEqual(self.reload().status, 204)
        self.daemon.wait_idle(4)
        self.daemon.write_config({"pools": {"default": {"max_idle": 1}}})
        self.assertEqual(self.reload().status, 204)
        self.daemon.wait_idle(1)
        self.finish()

    def test_hangup_reloads_too(self):
        self.daemon.write_config({"pools": {"default": {"max_idle": 3}}})
        os.kill(self.daemon.pid, signal.SIGHUP)
        self.daemon.wait_idle(3)
        self.finish()

    def test_bad_file_changes_nothing_and_says_so_b208(self):
        before = self.daemon.pool()
        self.daemon.write_config({"pools": {"default": {"max_idle": 5, "netwrok": "none"}}})
        response = self.reload()
        self.assertEqual((response.status, response.code), (422, "CONFIG_INVALID"))
        self.assertIn("netwrok", response.json["message"])
        time.sleep(1.2)
        self.assertEqual(self.daemon.pool()["max_idle"], before["max_idle"])
        self.assertEqual(self.daemon.run("/bin/echo", "x").text, "x")
        self.finish()

    def test_new_shape_retires_idle_and_keeps_leased_b116(self):
        box = self.daemon.acquire()
        self.daemon.wait_settled()
        old = {item["id"] for item in self.daemon.sandboxes() if item["state"] == "idle"}
        self.daemon.write_config({"pools": {"default": {"hostname": "rolled"}}})
        self.assertEqual(self.reload().status, 204)
        self.assertEqual(self.daemon.run("/bin/hostname").text, "rolled")
        self.daemon.wait_settled()
        new = {item["id"] for item in self.daemon.sandboxes() if item["state"] == "idle"}
        self.assertFalse(old & new)
        self.assertNotEqual(box.run("/bin/hostname").text, "rolled")
        self.assertGreaterEqual(
            self.daemon.metric_sum("sandpool_ends_total", reason="spec_changed"), 2)
        box.release()
        self.finish()

    def test_pools_come_and_go(self):
        self.daemon.write_config({"pools": {"extra": {"max_idle": 1}}})
        self.assertEqual(self.reload().status, 204)
        self.assertEqual(self.daemon.run("/bin/echo", "x", pool="extra").text, "x")
        self.daemon.wait_settled("extra")
        box = self.daemon.acquire("extra")
        self.daemon.write_config({"pools": {"extra": None}})
        self.assertEqual(self.reload().status, 204)
        # Its lease lives on; new ones are refused.
        self.assertEqual(box.run("/bin/echo", "x").text, "x")
        with self.assertRaises(t.ApiError) as caught:
            self.daemon.acquire("extra")
        self.assertIn(caught.exception.code, ("POOL_NOT_FOUND", "POOL_DESTROYED",
                                              "POOL_NOT_RUNNING"))
        box.release()
        wait_until(lambda: len(self.daemon.inits()) == 2, 10, "only the other pool is left")
        self.finish()

    def test_many_reloads_leak_nothing(self):
        before = t.fd_count(self.daemon.pid), t.fd_count(self.daemon.launcher_pid)
        for number in range(20):
            self.daemon.write_config({"pools": {"default": {"max_idle": 1 + number % 3}}})
            self.assertEqual(self.reload().status, 204)
        self.daemon.wait_settled()
        self.assertLessEqual(t.fd_count(self.daemon.pid), before[0] + 6)
        self.assertLessEqual(t.fd_count(self.daemon.launcher_pid), before[1] + 12)
        self.finish()


if __name__ == "__main__":
    main()
