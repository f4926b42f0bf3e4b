"""A run as people read it: in which words commands tell of it, and the page that ``hostcore report`` writes."""
