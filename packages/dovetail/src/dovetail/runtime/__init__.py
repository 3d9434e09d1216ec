"""From plan to results: engine, contexts, steps, output allocators, refit."""
