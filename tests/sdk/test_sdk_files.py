"""Files and directories as the published JavaScript SDK uses them."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from sdk_case import main, suite_case  # noqa: E402

Files = suite_case("files.mjs", {"pools": {"default": {"max_idle": 2}}})

if __name__ == "__main__":
    main()
