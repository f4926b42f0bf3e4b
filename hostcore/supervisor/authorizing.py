"""Asking the policies whether a job may run: those of the operator's file, and those that the job adds."""

import getpass
import grp
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from hostcore.errors import Errors, all_errors
from hostcore.events.bounds import bounded
from hostcore.job.sections import ComponentUse
from hostcore.plugins.errors import PluginError, guarded
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.installed import Discovered
from hostcore.plugins.load import Component, load_named
from hostcore.supervisor.operator_file import OperatorFile, read_operator_file
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import Plan
from hostcore_hookspecs.policy import Denial, PolicyContext, Principal


class PolicyDenied(HostcoreError):
    """A policy refuses a job."""

    code = "policy.denied"


def this_user() -> Principal:
    """Return the user of this process, with groups."""
    groups = []
    for number in {os.getgid(), *os.getgroups()}:
        try:
            groups.append(grp.getgrgid(number).gr_name)
        except KeyError:
            groups.append(str(number))
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = str(os.getuid())
    return Principal(name=name, groups=tuple(sorted(groups)))


def authorize_here(plan: RunPlan) -> None:
    """Ask the policies about a job that was started from this machine.

    :raises HostcoreError: See :func:`authorize`; and what is wrong with the operator's file.
    """
    operator = read_operator_file()
    if operator.policies or plan.spec.policies:
        authorize(plan, this_user(), over_http=False, policies=policies_of(operator, plan))


def policies_of(operator: OperatorFile, plan: RunPlan) -> list[Component]:
    """The policies of a job: the operator's, then its own.

    :raises HostcoreError: When one is not installed, or cannot be loaded.
    """
    spec, discovered = plan.spec, plan.discovered
    return [
        *operator_policies(operator, discovered),
        *_load(spec.policies, discovered, job_dir=spec.job_dir, import_paths=spec.import_paths),
    ]


def operator_policies(operator: OperatorFile, discovered: Discovered) -> list[Component]:
    """The policies that the operator's file names.

    :raises HostcoreError: When one is not installed, or cannot be loaded; it names the file.
    """
    try:
        return _load(operator.policies, discovered, job_dir=operator.folder, import_paths=True)
    except HostcoreError as error:
        for single in all_errors(error):
            single.file = single.file or (str(operator.path) if operator.path else None)
        raise


def _load(
    uses: Sequence[ComponentUse], discovered: Discovered, *, job_dir: Path, import_paths: bool | Collection[str]
) -> list[Component]:
    return [
        load_named(use, "policy", discovered, pointer=f"/policies/{at}", job_dir=job_dir, import_paths=import_paths)
        for at, use in enumerate(uses)
    ]


def authorize(plan: RunPlan, principal: Principal, *, over_http: bool, policies: Sequence[Component]) -> None:
    """Ask policies, all of them.

    :param principal: Who submits the job.
    :param over_http: Whether it came through the service.
    :raises Errors: With a :class:`PolicyDenied` for each that refuses. One that fails refuses, too.
    """
    asked = Plan(job=plan.job, plugins=[one.ref for one in plan.selected])
    context = PolicyContext(plan=asked, over_http=over_http)
    refused: list[HostcoreError] = []
    for policy in policies:
        try:
            denial = _ask(policy, asked, principal, context)
        except HostcoreError as error:
            refused.append(_failed(policy, error))
        else:
            if denial is not None:
                reason = f"{bounded(denial.reason).rstrip('.')} (policy {policy.ref.provenance})"
                refused.append(PolicyDenied(reason, hint=denial.hint, plugin=policy.ref.provenance))
    if refused:
        raise Errors(refused)


def _ask(policy: Component, plan: Plan, principal: Principal, context: PolicyContext) -> Denial | None:
    call = Hooks([policy], kinds=("policy",)).bind("authorize_job", of=policy)
    assert call is not None  # a policy without it is not loaded
    with guarded("asked about the job", policy.ref, code="plugin.policy", pointer=None):
        answer = call(plan, principal, context)
    if answer is None or isinstance(answer, Denial):
        return answer
    raise PluginError(
        f"the policy {policy.ref.provenance} answered {answer!r}, which is neither a Denial nor None",
        code="plugin.policy",
        plugin=policy.ref.provenance,
    )


def _failed(policy: Component, error: HostcoreError) -> PolicyDenied:
    return PolicyDenied(
        f"the policy {policy.ref.provenance} cannot tell, which refuses the job: {error.message}",
        hint=error.hint,
        plugin=policy.ref.provenance,
    )
