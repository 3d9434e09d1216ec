"""Models at other opsets: legacy forms, converted versions, and whether an operator means the same."""
