"""From what was measured to what a graph holds: who met whom, who waited for what, host time."""
