"""Files: what is read is data, bounded in size and checked before it is used; what is written is whole or not there.

Every reader of the package goes through this room, and raises `FileError` and nothing else for a file that is not what
it should be.
"""

from tinygpu.files.error import FileError as FileError

__all__ = ["FileError"]
