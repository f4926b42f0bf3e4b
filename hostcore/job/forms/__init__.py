"""Forms: what the annotation of a key accepts. One form answers for the type, the error message and the schema.

The walk of a key, ``seed: Annotated[int, Ge(0)] = key("Seeds …", default=0)`` in :class:`~hostcore.job.spec.JobSpec`:

1. ``object_form(JobSpec)`` reads the annotations of the class, and makes a :class:`Key` of each.
2. ``form_of(Annotated[int, Ge(0)])`` takes off the bounds, and picks a class below: ``Scalar(type=int, …)``.
3. The form of the key answers, with the bounds added by its base class, :class:`~hostcore.job.forms.form.Form`:

   ===================== ========================= ==========================================================
   question              call                      answer
   ===================== ========================= ==========================================================
   type                  ``structure(value, …)``   ``Scalar._read``: 7, or a ``Mismatch`` with a JSON pointer
   error message         ``words()``               ``Scalar._noun``: "an integer of at least 0"
   schema                ``schema(definitions)``   ``Scalar._schema``: {"type": "integer", "minimum": 0}
   ===================== ========================= ==========================================================

:func:`structure` and :func:`json_schema` do it for all keys of a class: a job, or a plugin's ``Settings``. Both modules
to read are ``form`` and the one of the class:

    ===================================== ============== =========================================
    annotation                            class          module
    ===================================== ============== =========================================
    str, int, float, bool, None           Scalar         scalars
    Path                                  LocalPath      scalars
    Literal, Enum                         Choice         scalars
    Secret                                SecretValue    scalars
    Any                                   Anything       scalars
    what JSON cannot give                 Unsupported    scalars
    ImportPath                            ImportedObject import_path
    list, tuple, set, Sequence            Array          containers
    dict, Mapping                         KeyedValues    containers
    A | B, Optional                       Union          containers
    attrs classes                         Object, Key    objects
    Annotated bounds, Pattern             (of any form)  :mod:`hostcore.job.bounds`
    ===================================== ============== =========================================

A new form is one class with three methods (``_read``, ``_noun``, ``_schema``) and a line in ``annotations``.
"""

from hostcore.job.forms.annotations import form_of, json_schema, object_form, structure
from hostcore.job.forms.form import CheckObject, unchecked
from hostcore.job.forms.import_path import ImportedObject
from hostcore.job.forms.objects import Key, Object, key

__all__ = [
    "CheckObject",
    "ImportedObject",
    "Key",
    "Object",
    "form_of",
    "json_schema",
    "key",
    "object_form",
    "structure",
    "unchecked",
]
