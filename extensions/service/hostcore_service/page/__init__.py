"""The page for people at ``/``: static files without a build step, served as they lie here.

How curves are drawn, it shares with the page of ``hostcore report``: its files lie in
``hostcore_inspect/report/assets``.
"""
