"""Any step of a past run again. Runs are read and never written to.

Doors:

    hostcore rows RUN --step N        the rows that a step trained on
    hostcore debug RUN --step N       the step, trained again beside the run
"""
