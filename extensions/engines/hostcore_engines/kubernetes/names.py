"""Names, labels and quantities as Kubernetes takes them, and errors for those that it does not.

Checked here because the server reports them in its own terms, or not at all before the pods are made: the message is
to show the place in the job.
"""

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from hostcore_hookspecs import FatalError

#: RFC 1123 labels: names of namespaces.
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: RFC 1123 subdomains: names of claims, Secrets and service accounts, prefixes of keys.
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE: Final = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:@+]{0,499}")
_DNS_NAME_LENGTH: Final = 253
#: The server's limit for all annotations of an object together.
_ANNOTATIONS_BYTES: Final = 256 * 1024
#: Pods and services are called ``<name>-worker-999``, which is a label as well.
_OBJECT_NAME_LENGTH: Final = 63 - len("-worker-999")
_MEGABYTE: Final = 10**6
#: Of memory, the largest first; what is a whole number of none of them is written in bytes.
_UNITS: Final = (("Gi", 2**30), ("G", 10**9), ("Mi", 2**20), ("M", _MEGABYTE), ("", 1))


def pointer(*keys: str) -> str:
    """A JSON pointer (RFC 6901): ``pointer("labels", "a/b")`` is ``/labels/a~1b``."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def object_name(name: str) -> str:
    """A name that leaves room for what operators put behind it; the same for the same name.

    :param name: An RFC 1123 label that begins with a letter.
    """
    if len(name) <= _OBJECT_NAME_LENGTH:
        return name
    return f"{name[: _OBJECT_NAME_LENGTH - 9].rstrip('-')}-{_digest(name)}"


def label_value(text: str) -> str:
    """Convert a text to the value of a label: forbidden characters become ``-``, and a digest keeps values distinct."""
    if _VALUE.fullmatch(text):
        return text
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:54].strip("-_.")
    return f"{stem}-{_digest(text)}".lstrip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def require_namespace(name: str, where: str) -> str:
    """Check the name of a namespace.

    :param where: A JSON pointer into the job.
    :raises FatalError: It is none.
    """
    if not _DNS_LABEL.fullmatch(name):
        raise FatalError(
            f"{name!r} is not the name of a namespace: at most 63 lower-case letters, digits and '-'", pointer=where
        )
    return name


def require_name(name: str, what: str, where: str) -> str:
    """Check the name of another object: a claim, a Secret, a service account.

    :raises FatalError: It is none.
    """
    if not _DNS_NAME.fullmatch(name) or len(name) > _DNS_NAME_LENGTH:
        raise FatalError(
            f"{name!r} is not the name of a {what}: lower-case letters, digits, '-' and '.'", pointer=where
        )
    return name


def require_key(key: str, what: str, where: str) -> str:
    """Check the key of a label or annotation, or the name of a resource: ``example.com/name``.

    :raises FatalError: It is none.
    """
    prefix, slash, name = key.rpartition("/")
    is_prefixed = _DNS_NAME.fullmatch(prefix) is not None and len(prefix) <= _DNS_NAME_LENGTH
    if (slash and not is_prefixed) or not _KEY.fullmatch(name):
        raise FatalError(
            f"{key!r} cannot be the {what}",
            pointer=where,
            hint="at most 63 letters, digits, '-', '_' and '.'; a DNS name may stand in front: team.example/name",
        )
    return key


def require_value(value: str, what: str, where: str) -> str:
    """Check the value of a label that must not be changed.

    :raises FatalError: It is none.
    """
    if not _VALUE.fullmatch(value):
        raise FatalError(f"{value!r} cannot be the {what}", pointer=where)
    return value


def require_variable(name: str, where: str) -> str:
    """Check the name of an environment variable.

    :raises FatalError: It is none.
    """
    if not _VARIABLE.fullmatch(name):
        raise FatalError(
            f"{name!r} cannot be the name of an environment variable",
            pointer=where,
            hint="letters, digits, '_', '-' and '.', not beginning with a digit",
        )
    return name


def require_text(text: str, what: str, where: str) -> str:
    """Check that a text can be handed to a process, and stand in a JSON document.

    :raises FatalError: It has a NUL, or is no Unicode.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FatalError(f"the {what} is not valid Unicode: {text!r}", pointer=where) from None
    if "\0" in text:
        raise FatalError(f"the {what} has a NUL character, which no process can be given", pointer=where)
    return text


def require_image(image: str, where: str) -> str:
    """Check the name of an image.

    :raises FatalError: It is none.
    """
    if not _IMAGE.fullmatch(image):
        raise FatalError(f"{image!r} is not the name of a container image", pointer=where)
    return image


def require_annotations(annotations: Mapping[str, str]) -> None:
    """Check the job's annotations.

    :raises FatalError: A key is none, or they are too large.
    """
    for key, value in annotations.items():
        where = pointer("annotations", key)
        require_text(value, f"annotation {key}", where)
        require_key(key, "key of an annotation", where)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_BYTES:
        raise FatalError(
            f"the annotations have {size:,} bytes; Kubernetes takes {_ANNOTATIONS_BYTES:,}", pointer="/annotations"
        )


def cpu_quantity(cores: float) -> str:
    """Processors as Kubernetes writes them: ``8``, ``500m``.

    :raises FatalError: Less than the thousandth that Kubernetes counts in.
    """
    millis = round(cores * 1000)
    if millis < 1:
        raise FatalError(f"{cores} CPU cores are less than 0.001", pointer="/resources/cpus_per_node")
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def memory_quantity(gb: float) -> str:
    """Memory as Kubernetes writes it, to the byte: ``512Gi``, ``512G``, ``500M``.

    :param gb: In 10^9 bytes.
    :raises FatalError: Less than a megabyte.
    """
    size = round(Decimal(str(gb)) * 10**9)
    if size < _MEGABYTE:
        raise FatalError(f"{gb} GB of memory are less than 0.001", pointer="/resources/memory_per_node_gb")
    unit, count = next((unit, count) for unit, count in _UNITS if size % count == 0)
    return f"{size // count}{unit}"
