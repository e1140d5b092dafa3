"""Timeline -> Ledger: where every nanosecond of a device's window went."""
