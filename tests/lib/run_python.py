"""Run one unittest file, whatever its author put at its end, and print its counts last.

usage: run_python.py FILE [WORD…]
"""

import importlib.util
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sandpool_test  # noqa: E402


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main():
    loader = unittest.TestLoader()
    if len(sys.argv) > 2:
        loader.testNamePatterns = [f"*{word}*" for word in sys.argv[2:]]
    return sandpool_test.run_suite(loader.loadTestsFromModule(load(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
