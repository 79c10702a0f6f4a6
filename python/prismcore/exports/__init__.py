"""Graphs and their replays in formats of other tools: Kineto, Chakra, flight recorder, memory snapshot."""
