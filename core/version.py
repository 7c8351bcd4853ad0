"""The release, told to the other end of every link."""

import sys

__version__ = "0.1.0"

#: Changes with the meaning of messages; both ends of a link must agree on it.
PROTOCOL = 1

#: Major and minor of this Python: what is pickled by value goes between processes of the same one only.
PYTHON = "{}.{}".format(*sys.version_info[:2])
