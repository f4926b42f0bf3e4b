"""The page for people at ``/``: static files without a build step, served as they lie here.

``assets/`` also holds what the page shares with the report of ``hostcore report``: how curves are drawn.
"""
