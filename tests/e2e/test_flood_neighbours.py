"""What floods of output cost others: how long a neighbour's exec takes beside them (FloodCase of
test_hostile_streams.py). tests/run lets nothing else run meanwhile: what is compared is processor time.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
import test_hostile_streams as streams  # noqa: E402
from sandpool_test import main  # noqa: E402


class Floods(streams.FloodCase):
    """`yes` with a client that takes all of it, against programs and clients that burn as much
    processor time in silence: what is left of the difference is the daemon's doing."""

    @t.limit(400)
    def test_neighbours_of_a_flood_are_served_within_twice_the_time(self):
        self.compare("silent", ("framed", "events"))  # four ways, twice a round: yes for 30 s


class OtherFloods(streams.FloodCase):
    """The same through terminals, from a server inside and of a file; and what flows as slowly as its
    client reads, against nothing at all where nothing burns."""

    ROUNDS = 3
    SECONDS = 1

    def setUp(self):
        super().setUp()
        self.serve(self.event_box)
        # All of it a hole: nothing is stored.
        self.event_box.own().shell("truncate -s 1T /workspace/long")

    @t.limit(400)
    def test_neighbours_of_what_is_read_fast(self):
        self.compare("silent", ("terminals", "proxied", "downloads"))

    @t.limit(400)
    def test_neighbours_of_what_is_read_slowly(self):
        self.compare("quiet", ("framed", "events", "proxied", "downloads"), (8,), 0.1)
        # The kernel burns for a terminal's writer what little of it is read.
        self.compare("silent", ("terminals",), (8,), 0.1)


if __name__ == "__main__":
    main()
