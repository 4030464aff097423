"""The store: the only room that touches files under the root. `Store` is its door.

`disk` the operations, `files` durable writes, `documents` JSON with a last good copy, `locks`, `board` and `tasks`
the work, `ticks` the clock, `registry`, `incarnations` the fence, the rest as named.
"""

from mesh.store.store import Store

__all__ = ["Store"]
