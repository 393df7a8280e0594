"""The lifecycle API as the published JavaScript SDK uses it."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from sdk_case import main, suite_case  # noqa: E402

Lifecycle = suite_case("lifecycle.mjs", {"pools": {"default": {"max_idle": 4}}})

if __name__ == "__main__":
    main()
