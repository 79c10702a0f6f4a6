"""Readers of traces that others wrote: files into plain typed columns, and from there into graphs."""
