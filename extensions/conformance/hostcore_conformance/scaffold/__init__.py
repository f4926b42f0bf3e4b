"""Packages that ``hostcore new`` writes: pip packages of plugins, from the files in ``templates``.

``templates/shared`` has what all kinds have, ``templates/<kind>`` what is the kind's own, and ``templates/demo`` a
trainer for the jobs of kinds that need one beside the plugin. Each file becomes one of the package, without ``.tmpl``;
each of ``templates/<kind>/parts`` stands for a placeholder in a shared file.
"""
