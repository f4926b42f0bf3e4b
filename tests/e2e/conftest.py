"""The browser that pages are looked at with."""

from browser import chromium, first_tab, open_tab

__all__ = ["chromium", "first_tab", "open_tab"]
