"""Launchers for engines that exist already. Each asks its engine; none keeps anything in the instance."""
