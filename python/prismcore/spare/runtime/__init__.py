"""SPARe in a training loop: groups are lost and the step goes on (``docs/guide-spare-training.md``).

Import from the modules; all but ``work``, ``data`` and ``events`` need the extra ``prismcore[spare]``.
"""
