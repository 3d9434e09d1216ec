"""From a plan to results: runtimes, engines, contexts, refitters and what a script hands to them."""
