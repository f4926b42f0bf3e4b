"""Uploads: everything of a run is copied elsewhere by its uploaders, in the background, whole and once."""
