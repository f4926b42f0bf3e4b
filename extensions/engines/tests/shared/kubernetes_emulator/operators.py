"""Kubeflow's operators, as far as one run needs them: pods from a PyTorchJob or TrainJob, conditions from the pods."""

from __future__ import annotations

import copy
from typing import Any

from ports import free_ports

from .api import ApiServer, Key, now
from .kubelet import Kubelet


class Operator:
    """Both operators."""

    def __init__(self, api: ApiServer, kubelet: Kubelet) -> None:
        self._api = api
        self._kubelet = kubelet
        self._ports: dict[str, int] = {}

    async def run(self) -> None:
        """Look after all jobs, whenever something has changed."""
        while True:
            self._api.changed.clear()
            for job in self._api.all("pytorchjobs"):
                self._reconcile(job, _PyTorch(job))
            for job in self._api.all("trainjobs"):
                self._reconcile(job, _Train(job))
            await self._api.changed.wait()

    def _reconcile(self, job: dict[str, Any], kind: _PyTorch | _Train) -> None:
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        pods = {
            pod["metadata"]["name"]: pod
            for pod in self._api.all("pods", key[0])
            if any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences", ()))
        }
        conditions = {one["type"]: one for one in job.get("status", {}).get("conditions", ())}
        over = any(name in conditions for name in (kind.succeeded, "Failed"))
        if over:
            if kind.removes_running:
                self._remove(pods, phases=("Pending", "Running"))
            return
        if kind.suspended:
            self._remove(pods)
            self._conclude(kind, key, job, "Suspended", f"{job['kind']} {key[1]} is suspended.", pods={})
            return
        wanted = kind.pods(self._port(job["metadata"]["uid"]))
        for pod in wanted:
            if self._api.pods_forbidden:
                self._warn(job, "FailedCreatePod", f"Error creating: {self._api.pods_forbidden}")
            elif pod["metadata"]["name"] not in pods:
                self._make(job, pod)
        self._judge(kind, key, job, {name: self._api.find("pods", (key[0], name)) for name in pods})

    def _port(self, uid: str) -> int:
        if uid not in self._ports:
            self._ports[uid] = free_ports(9)  # rank 0 listens on one behind it
        return self._ports[uid]

    def _make(self, job: dict[str, Any], pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        metadata["namespace"] = job["metadata"]["namespace"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True}
        metadata["ownerReferences"] = [{**owner, "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}]
        pod["status"] = {"phase": "Pending"}
        self._api.put("pods", pod)
        self._kubelet.start(pod)

    def _warn(self, job: dict[str, Any], reason: str, message: str) -> None:
        metadata = job["metadata"]
        place = {"name": f"{metadata['name']}.warning", "namespace": metadata["namespace"]}
        if self._api.find("events", (place["namespace"], place["name"])) is None:
            told = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": now()}
            about = {"kind": job["kind"], "name": metadata["name"], "uid": metadata["uid"]}
            self._api.put("events", {"kind": "Event", "metadata": place, "involvedObject": about, **told})

    def _remove(self, pods: dict[str, Any], phases: tuple[str, ...] = ()) -> None:
        for name, pod in pods.items():
            if not pod["metadata"].get("deletionTimestamp") and (not phases or pod["status"]["phase"] in phases):
                self._kubelet.delete((pod["metadata"]["namespace"], name), None)

    def _judge(self, kind: _PyTorch | _Train, key: Key, job: dict[str, Any], pods: dict[str, Any]) -> None:
        phases = {name: pod["status"]["phase"] for name, pod in pods.items() if pod}
        first, name = kind.first, job["kind"]
        if phases.get(first) == "Succeeded":
            self._conclude(kind, key, job, kind.succeeded, f"{name} {key[1]} is successfully completed.", pods)
        elif "Failed" in phases.values():
            failed = f"{name} {key[1]} is failed because 1 replica(s) failed."
            self._conclude(kind, key, job, "Failed", failed, pods)
        elif phases.get(first) == "Running":
            self._conclude(kind, key, job, kind.running, f"{name} {key[1]} is running.", pods)

    def _conclude(
        self, kind: _PyTorch | _Train, key: Key, job: dict[str, Any], condition: str, message: str, pods: dict[str, Any]
    ) -> None:
        before = {one["type"]: one for one in job.get("status", {}).get("conditions", ())}
        counted = kind.counts([pod["status"]["phase"] for pod in pods.values() if pod])
        now_true = {condition} - {""}
        conditions = {name: one if name in now_true else {**one, "status": "False"} for name, one in before.items()}
        for name in now_true - {name for name, one in before.items() if one["status"] == "True"}:
            conditions[name] = {
                "type": name,
                "status": "True",
                "reason": f"{job['kind']}{name}",
                "message": message,
                "lastTransitionTime": now(),
            }
        status = {"conditions": list(conditions.values()), **counted}
        if {key: job.get("status", {}).get(key) for key in status} != status:
            plural = "pytorchjobs" if job["kind"] == "PyTorchJob" else "trainjobs"
            self._api.change(plural, key, {"status": status})


class _PyTorch:
    succeeded, running = "Succeeded", "Running"

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        policy = job["spec"].get("runPolicy", {})
        self.suspended = policy.get("suspend", False)
        self.removes_running = policy.get("cleanPodPolicy") in ("Running", "All")
        self.first = f"{job['metadata']['name']}-master-0"

    def pods(self, port: int) -> list[dict[str, Any]]:
        name, replicas = self._job["metadata"]["name"], self._job["spec"]["pytorchReplicaSpecs"]
        total = sum(replica["replicas"] for replica in replicas.values())
        each = int(self._job["spec"].get("nprocPerNode", "1"))
        made, node = [], 0
        for kind in ("Master", "Worker"):
            for index in range(replicas.get(kind, {"replicas": 0})["replicas"]):
                pod = copy.deepcopy(replicas[kind]["template"])
                labels = {
                    "training.kubeflow.org/job-name": name,
                    "training.kubeflow.org/replica-type": kind.lower(),
                    "training.kubeflow.org/replica-index": str(index),
                }
                pod["metadata"] = {**pod["metadata"], "name": f"{name}-{kind.lower()}-{index}"}
                pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **labels}
                pod["spec"]["restartPolicy"] = replicas[kind]["restartPolicy"]
                pod["spec"]["containers"][0]["env"] += _variables(
                    PYTHONUNBUFFERED="1",
                    MASTER_PORT=port,
                    PET_MASTER_PORT=port,
                    MASTER_ADDR="127.0.0.1",
                    PET_MASTER_ADDR="127.0.0.1",
                    WORLD_SIZE=total * each,
                    RANK=node,
                    PET_NODE_RANK=node,
                    PET_NPROC_PER_NODE=each,
                    PET_NNODES=total,
                )
                made.append(pod)
                node += 1
        return made

    @staticmethod
    def counts(phases: list[str]) -> dict[str, Any]:
        return {"replicaStatuses": {"Master": {"active": phases.count("Running")}}}


class _Train:
    succeeded, running, removes_running = "Complete", "", False

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self.suspended = job["spec"].get("suspend", False)
        self.first = f"{job['metadata']['name']}-node-0-0"

    def pods(self, port: int) -> list[dict[str, Any]]:
        name, trainer = self._job["metadata"]["name"], self._job["spec"]["trainer"]
        [patches] = self._job["spec"]["runtimePatches"]
        [patch] = patches["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        template = patch["template"]["spec"]["template"]
        made = []
        for index in range(trainer["numNodes"]):
            pod = copy.deepcopy(template)
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": str(index),
            }
            pod["metadata"] = {**pod.get("metadata", {}), "name": f"{name}-node-0-{index}"}
            pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **labels}
            [container] = pod["spec"]["containers"]
            container["image"] = trainer.get("image", "pytorch/pytorch:latest")
            container["command"] = trainer["command"]
            container["env"] = trainer["env"] + _variables(
                PET_NNODES=trainer["numNodes"],
                PET_NPROC_PER_NODE=trainer["numProcPerNode"],
                PET_NODE_RANK=index,
                PET_MASTER_ADDR="127.0.0.1",
                PET_MASTER_PORT=port,
            )
            pod["spec"]["restartPolicy"] = "Never"  # the runtime's business
            made.append(pod)
        return made

    @staticmethod
    def counts(phases: list[str]) -> dict[str, Any]:
        jobs = {"name": "node", "ready": phases.count("Running"), "succeeded": phases.count("Succeeded")}
        return {"jobsStatus": [{**jobs, "failed": phases.count("Failed"), "active": 0, "suspended": 0}]}


def _variables(**values: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]
