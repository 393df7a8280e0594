"""Isolated sessions: namespaces inside a sandbox, by execd's /v1/isolated routes."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from execd_case import ExecdCase  # noqa: E402
from sandpool_test import main  # noqa: E402


class IsolatedCase(ExecdCase):
    def setUp(self):
        self.sandbox = self.box()

    def create(self, path="/workspace", mode="rw", box=None, **more):
        response = (box or self.sandbox).execd(
            "POST", "/v1/isolated/session", {"workspace": {"path": path, "mode": mode}, **more})
        self.assertEqual(response.status, 201, response.body)
        return response.json["session_id"]

    def refused(self, body, status, code):
        response = self.sandbox.execd("POST", "/v1/isolated/session", body)
        self.assertEqual(response.status, status, response.body)
        self.assertEqual(response.json["code"], code)
        return response.json["message"]

    def delete(self, session, status=200):
        response = self.sandbox.execd("DELETE", f"/v1/isolated/session/{session}")
        self.assertEqual(response.status, status, response.body)

    def events(self, session, code, **more):
        response = self.sandbox.execd("POST", f"/v1/isolated/session/{session}/run",
                                      {"code": code, **more}, timeout=60)
        self.assertEqual(response.status, 200, response.body)
        return [json.loads(part) for part in response.body.decode().split("\n\n") if part]

    def run_in(self, session, code, **more):
        """(stdout, evalue of the error or None)"""
        events = self.events(session, code, **more)
        text = "".join(event["text"] + ("" if event["text"].endswith("\n") else "\n")
                       for event in events if event["type"] == "stdout")
        self.assertIn(events[-1]["type"], ("execution_complete", "error"))
        error = events[-1].get("error")
        return text, error and error["evalue"]

    def outside(self, command):
        response = self.sandbox.execd("POST", "/command", {"command": command})
        events = [json.loads(part) for part in response.body.decode().split("\n\n") if part]
        return "".join(event["text"] + "\n" for event in events if event["type"] == "stdout")


class Sessions(IsolatedCase):
    def test_A_058_create_run_delete(self):
        session = self.create()
        self.assertEqual(self.run_in(session, "echo hello"), ("hello\n", None))
        self.delete(session)
        self.delete(session, 404)


if __name__ == "__main__":
    main()
