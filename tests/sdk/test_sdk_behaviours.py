"""Every behaviour of behaviours.txt that applies is named in a test, and no other id is."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from sandpool_test import Case, main  # noqa: E402

ID = r"A-\d{3}"
# `test("A-001 …"` of a suite, `def test_A_001_…` of Python, in either case.
NAMED = r'^test\("((?:A-\d{3}[ ,]*)+)|^    def test_((?:a_\d{3}_?)+)'


def listed():
    """(ids that apply, {id: why it does not})."""
    applies, excluded = set(), {}
    for line in (HERE / "behaviours.txt").read_text(encoding="utf-8").splitlines():
        span = re.fullmatch(rf"({ID}) … ({ID})", line)
        single = re.fullmatch(rf"({ID}) (\S.*)", line)
        if span:
            first, last = (int(name[2:]) for name in span.groups())
            applies.update(f"A-{number:03}" for number in range(first, last + 1))
        elif single:
            excluded[single.group(1)] = single.group(2)
        else:
            assert line.startswith("#"), line
    return applies, excluded


def named():
    found = set()
    for file in [*HERE.glob("*.mjs"), *HERE.parent.glob("e2e/test_*.py")]:
        text = file.read_text(encoding="utf-8")
        for match in re.finditer(NAMED, text, re.M | re.I):
            found.update(f"A-{number}" for number in re.findall(r"\d{3}", match.group(0)))
    return found


class Behaviours(Case):
    def test_each_has_a_test(self):
        applies, excluded = listed()
        self.assertEqual(sorted(applies - named()), [], "named in no test")
        self.assertEqual(sorted(named() - applies - set(excluded)), [], "not in behaviours.txt")
        self.assertEqual(sorted(applies & set(excluded)), [])

    def test_none_is_forgotten(self):
        applies, excluded = listed()
        self.assertEqual(sorted(applies | set(excluded)),
                         [f"A-{number:03}" for number in range(1, 93)])


if __name__ == "__main__":
    main()
