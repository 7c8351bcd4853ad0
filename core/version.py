"""The release, told to the other end of every link."""

__version__ = "0.1.0"

#: Changes with the meaning of messages; both ends of a link must agree on it.
PROTOCOL = 1
