"""``python -m``: a process that uploads a file and comes to its end at once."""

import hashlib
from pathlib import Path
from typing import Any

from hostcore_conformance.call_thread import CallThread
from hostcore_conformance.process.isolated import CLOSED, told_here
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.uploader import Artifact, UploadContext


def main() -> None:
    """Upload one file."""
    subject, told = told_here()
    component = subject.component()
    hooks = subject.hooks(component)
    content = Path(told["path"]).read_bytes()
    ctx = UploadContext(
        run_id=told["run_id"],
        job=Job(run_id=told["run_id"], trainer="conformance"),
        run_dir=told["run_dir"],
        base_uri=told["base_uri"],
        prefix=f"{told['run_id']}/framework=conformance",
        is_canceled=bool,
    )
    artifact = Artifact(
        kind="checkpoint",
        path=told["path"],
        relative_path="checkpoints/step-000020/model.safetensors",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        step=20,
    )
    with CallThread(subject) as thread:

        def call(method: str, *arguments: Any) -> None:
            if bound := hooks.bind(method, of=component):
                thread.call(method, bound, *arguments)

        call("open", ctx)
        call("upload_artifact", artifact)
        call("close")
    print(CLOSED, flush=True)


if __name__ == "__main__":
    main()
