"""Forms: what the annotation of a setting accepts. One :class:`~hostcore.job.forms.form.Form` answers three questions.

    form = form_of(Annotated[int, Ge(1)])
    form.structure(value, reading)   the value in Python, or errors with JSON pointers
    form.words()                     "an integer of at least 1", for error messages and the reference
    form.schema(definitions)         {"type": "integer", "minimum": 1}, for editors and the service

A key of the job gets all three from one line of an attrs class, such as ``seed: Annotated[int, Ge(0)]`` in ``JobSpec``:
:func:`object_form` reads the annotations of the class once and makes a :class:`Key` of each, :func:`form_of` takes the
bounds off an annotation and picks the class below. A plugin's ``Settings`` and ``Hyperparams`` go the same way.

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

A new form is one class with three methods (``_read``, ``_noun``, ``_schema``) and a line in :func:`form_of`.
"""

from hostcore.job.forms.import_path import ImportedObject
from hostcore.job.forms.objects import Key, Object, form_of, object_form

__all__ = ["ImportedObject", "Key", "Object", "form_of", "object_form"]
