"""Examination of a machine, or of a job on it: ``hostcore doctor``.

::

    machine ▸ installed, settings, system ▸ disk (disk_probe) ▸ compute (machine_probe, device_probe ▸ product)
                                                              ▸ ranks (rank_probe)      ▸ DoctorFinding ▸ job

A check that may hang or die is a probe: a process of its own, which answers by :mod:`hostcore.probe`. Probes alone
import torch.
"""
