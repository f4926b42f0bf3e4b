"""Forms: what the annotation of a key accepts. One form answers for the type, the error message and the schema.

The walk of a key, ``seed: Annotated[int, Ge(0)] = key("Seeds …", default=0)`` in :class:`~hostcore.job.spec.JobSpec`:

1. ``structure(JobSpec, job)``, called by ``load_job``, and ``json_schema(JobSpec)``, called by ``job_schema``, take the
   form of the class: ``object_form(JobSpec)``, an :class:`Object` with a :class:`Key` for each annotation.
2. The form of the key is ``form_of(Annotated[int, Ge(0)])`` (``annotations``): it takes off the bounds, and picks a
   class below: ``Scalar(type=int, bounds=(Ge(0),))``.
3. The form answers. Its class has a method for each question, and :class:`~hostcore.job.forms.form.Form` adds the
   bounds (``hostcore.job.bounds``):

   =============== ================ ============ ==================================================================
   question        of the class     with bounds  answer
   =============== ================ ============ ==================================================================
   type            ``_read``        structure    7; else a ``Mismatch``, whose pointer is completed by the ``Object``
   error message   ``_noun``        words        "an integer" + "of at least 0"; ``Mismatch``: "expected …, found …"
   schema          ``_schema``      schema       {"type": "integer"} + {"minimum": 0}; ``Key`` adds meaning, default
   =============== ================ ============ ==================================================================

The classes, for the keys of a job as for those of a plugin's ``Settings``:

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
