"""The site of the documentation: pages gathered from the repository, pages made from the source, and versions."""
