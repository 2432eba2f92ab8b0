"""`rti eval`: trials kept on disk, their record, and tables of several records.

The playing is in `rti.evaluate`.
"""
