"""Launchers for engines that exist already. Each asks its engine; none keeps anything in the instance.

Its door: the launchers ``torchrun``, ``slurm``, ``ray``, ``kubernetes-pytorchjob`` and ``kubernetes-trainjob`` (plan,
launch, poll, cancel, read_logs), the documents that they submit, and the files of a launch in the run directory; and
``ranks``, by which the supervisors of an engine's ranks meet.
"""
