"""From ways that can be tried to launches: nothing is planned, lowered or compiled here."""
