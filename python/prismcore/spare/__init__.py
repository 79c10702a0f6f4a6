"""SPARe: training through failures by stacked, redundant shards that are re-ordered (``docs/spare.md``).

Import from the modules: ``placement``, ``reorderer``. Nothing here imports torch.
"""
