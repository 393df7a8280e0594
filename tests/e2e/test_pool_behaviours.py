"""Every behaviour of pool_behaviours.txt that applies is named in a test, and no other id is."""

import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from sandpool_test import Case, main  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parent.parent
ID = r"P-(\d{3})"
# The checklist has its numbers in groups.
GROUPS = ((1, 14), (20, 49), (60, 85), (100, 119), (130, 144), (150, 170), (180, 194), (200, 206))
# What a test is named by: a comment in C; `def test_…_p160_p161`, or a comment, in Python.
C_COMMENT = r"/\*.*?\*/"
PYTHON_NAME = r"^    def test_\w+|  # .*$|^ +# .*$"


def ids(text):
    """P-001 and P-003 … P-005: with all between."""
    found = {int(number) for number in re.findall(ID, text)}
    for first, last in re.findall(rf"{ID} … {ID}", text):
        found.update(range(int(first), int(last) + 1))
    return found


def listed():
    """(ids that apply, {id: why it does not})."""
    applies, excluded = set(), {}
    for line in (TESTS / "unit/pool_behaviours.txt").read_text(encoding="utf-8").splitlines():
        reason = re.fullmatch(rf"{ID} - (\S.*)", line)
        if reason:
            excluded[int(reason.group(1))] = reason.group(2)
        elif re.fullmatch(rf"{ID}( … {ID})?", line):
            applies |= ids(line)
        else:
            assert line.startswith("#"), line
    return applies, excluded


def named():
    """{id: the files that name it}."""
    found = {}
    for file in sorted(TESTS.rglob("*")):
        if file.suffix in (".c", ".h"):
            pattern, flags = C_COMMENT, re.S
        elif file.suffix == ".py" and file.name.startswith("test_"):
            pattern, flags = PYTHON_NAME, re.M
        else:
            continue
        for text in re.findall(pattern, file.read_text(encoding="utf-8"), flags):
            numbers = ids(text)
            if "def " in text:
                numbers = {int(number) for number in re.findall(r"_p(\d{3})(?=_|$)", text)}
            for number in numbers:
                found.setdefault(number, set()).add(file.name)
    return found


def names(numbers):
    return [f"P-{number:03}" for number in sorted(numbers)]


class Behaviours(Case):
    def test_each_has_a_test(self):
        applies, excluded = listed()
        found = named()
        self.assertEqual(names(applies - set(found)), [], "named in no test")
        self.assertEqual({number: files for number, files in found.items()
                          if number not in applies}, {}, "named, and not to be shown")
        self.assertEqual(names(applies & set(excluded)), [])

    def test_none_is_forgotten(self):
        applies, excluded = listed()
        self.assertEqual(names(applies | set(excluded)), names(
            number for first, last in GROUPS for number in range(first, last + 1)))


if __name__ == "__main__":
    main()
