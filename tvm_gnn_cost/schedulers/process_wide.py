"""What a search changes for the whole process: where stderr goes, TVM's functions by name, MetaSchedule's log."""

from __future__ import annotations

import threading

#: Held by whoever changes them, a search as long as it runs; a search in another thread waits.
PROCESS_WIDE = threading.RLock()
