"""What serving a model costs beside a bare server of the same libraries."""
