"""One call of an uploader, and what it says that it has done."""

from collections.abc import Callable

from hostcore_hookspecs.errors import FatalError, HostcoreError
from hostcore_hookspecs.uploader import Artifact, UploadReceipt


class NotWhatWasSent(HostcoreError):
    """Something else than the artifact was found at its destination."""

    code = "uploads.differs"


def transfer(upload_artifact: Callable[[Artifact], UploadReceipt], artifact: Artifact) -> UploadReceipt:
    """Upload an artifact, and compare what was found at its destination with it.

    :raises NotWhatWasSent: When its size or SHA-256 is another.
    :raises FatalError: When what the uploader returns is no receipt.
    :raises BaseException: Whatever the uploader raises.
    """
    receipt = upload_artifact(artifact)
    if not isinstance(receipt, UploadReceipt) or not isinstance(receipt.uri, str):
        found = "a receipt without a URI" if isinstance(receipt, UploadReceipt) else type(receipt).__name__
        raise FatalError(f"upload_artifact returned {found}, not an UploadReceipt")
    if receipt.size != artifact.size:
        raise NotWhatWasSent(f"{receipt.size} bytes were found at {receipt.uri}, where {artifact.size} were sent")
    if receipt.sha256 and receipt.sha256.lower() != artifact.sha256:
        raise NotWhatWasSent(f"the content found at {receipt.uri} is not what was sent (SHA-256 differs)")
    return receipt
