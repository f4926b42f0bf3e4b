"""Secrets: references in the settings of plugins, their values, and the filter that hides values in output.

Door:

    resolve_secrets, remember_secrets, references (reference)   settings with references -> values, hidden from now on
    remember, scrub, scrubbed, SecretFilter (scrub)             text and JSON with stars in place of values
    ScrubbedOutput (output)                                     output of a process, filtered on its way into a file
"""
