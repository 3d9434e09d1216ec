"""Where values of a program lie: at the border, beside the steps that read them, over each other, and in an arena."""
