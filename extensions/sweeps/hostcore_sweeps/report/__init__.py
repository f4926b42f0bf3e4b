"""A sweep as people look at it: the page that ``hostcore sweep report`` writes, and the pictures in it."""
