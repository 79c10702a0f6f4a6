"""The ``prism`` command. Importing this package imports neither torch nor the C++ core."""
