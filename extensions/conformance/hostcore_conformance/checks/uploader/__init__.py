"""Whether an uploader brings files where they belong, and nothing else."""

# isort: skip_file
# This is the order in which they are asked.

from hostcore_conformance.checks.uploader import arriving
from hostcore_conformance.checks.uploader import again
from hostcore_conformance.checks.uploader import failing
from hostcore_conformance.checks.uploader import serving

__all__ = ["again", "arriving", "failing", "serving"]
