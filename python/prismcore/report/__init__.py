"""Results as tables, JSON and Perfetto timelines."""
