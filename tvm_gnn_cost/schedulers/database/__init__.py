"""MetaSchedule's databases, as today's TVM reads them, and a TVM of 0.14 to 0.19 those of its time."""
