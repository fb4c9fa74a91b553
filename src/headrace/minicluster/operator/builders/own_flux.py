"""Scripts for pods without a view, which run their image's own Flux (`flux.container.disable`).

Such an image has bash and a Flux of any version, so the scripts use only what every version accepts: `flux start` with
the broker's options after `-o`, `flux R encode`, and a configuration file. The broker's key comes from the
MiniCluster's Secret. As in pods with a view, the exit code is the job's own, and a follower restarts its broker until
the instance has ended normally.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from ...api.fields import MiniCluster
from ...api.plan import Plan, make_plan
from ...api.pod_plan import BROKER_PORT, INDEX_VARIABLE, NAMESPACE_VARIABLE, PodPlan, make_pod_plan
from ...api.shell_text import Mode
from .. import names
from ..keys import CURVE_CERT

_ADDRESS_VARIABLE = "HEADRACE_POD_IP"
# The environment variable with the pod's own address.
ADDRESS = {"name": _ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
_END = "HEADRACE_END_OF_FILE"


def script_key(cluster: MiniCluster, index: int) -> str:
    """The key of a container's script in the ConfigMap, with the Flux Operator's names."""
    part = "wait" if cluster.spec.containers[index] is cluster.runner else "start"
    return f"{part}-{index}"


def command(cluster: MiniCluster, index: int) -> list[str]:
    """The command of a container that runs its script."""
    return ["/bin/bash", f"{names.CONFIG_MOUNT}{script_key(cluster, index)}.sh"]


def items(cluster: MiniCluster) -> list[dict[str, Any]]:
    """The ConfigMap's keys as files that bash runs."""
    return [{"key": key, "path": f"{key}.sh", "mode": 0o777} for key in scripts(cluster, "")]


def scripts(cluster: MiniCluster, domain: str) -> dict[str, str]:
    """The scripts of the containers by their ConfigMap keys. `domain` is the cluster's DNS domain."""
    found = {}
    for index, one in enumerate(cluster.spec.containers):
        if one is cluster.runner:
            found[script_key(cluster, index)] = broker_script(cluster, domain)
        elif not one.no_wrap_entrypoint:
            found[script_key(cluster, index)] = _sidecar_script(cluster, str(index))
    return found


def broker_script(cluster: MiniCluster, domain: str) -> str:
    """The script that runs the broker of the lead or of a follower; the lead also runs the job."""
    plan, pods = make_plan(cluster, with_groups=True), make_pod_plan(cluster, domain=domain)
    # With a lead outside this MiniCluster, all pods are followers. A group's pods have indexes of their own.
    is_lead = f'[ "${{{INDEX_VARIABLE}:-}}${{{names.GROUP_VARIABLE}:-}}" = 0 ]'
    return "\n".join(
        [
            "#!/bin/bash",
            "set -eEu -o pipefail" if plan.strict else "",
            _surroundings(cluster, plan),
            _configuration(cluster, pods),
            'touch "$base/flux-operator-done.txt"',
            plan.before,
            _options(cluster, plan),
            f"if {'false' if pods.lead_connect else is_lead}; then",
            _lead(plan, cluster.spec.ignore_failure, pods.replaces_killed),
            "else",
            _follower(plan, cluster.flux.complete_workers),
            "fi",
            "",
        ]
    )


def _surroundings(cluster: MiniCluster, plan: Plan) -> str:
    """Folders, environment variables that users' commands need, and the signal handler."""
    base = shlex.quote(_base(cluster))
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in cluster.flux.environment.items())
    return f"""
base={base}
config=$base/config
case ${{HOME:-/}} in /) export HOME={names.HOME_MOUNT} USER=flux-operator ;; esac
export STATE_DIR=$config/var/lib/flux FLUX_OUTPUT_DIR={shlex.quote(plan.output_dir)}
export HEADRACE_MINI_DIR=$config/run/minicluster fluxsocket=local://$config/run/flux/local
umask 022
mkdir -p "$config/etc/flux/config" "$config/etc/flux/system/cron.d" "$config/curve" "$config/run/flux" \\
    "$STATE_DIR" "$FLUX_OUTPUT_DIR" "$HEADRACE_MINI_DIR"
cat > "$base/flux-view.sh" <<'{_END}'
export fluxsocket=local://{_base(cluster)}/config/run/flux/local
{exports}{_END}
printf '. %s/flux-view.sh\\nflux proxy $fluxsocket bash\\n' "$base" > "$base/flux-connect.sh"
. "$base/flux-view.sh"
printf '%s\\n' 'flux module remove sched-simple' 'flux module load sched-fluxion-resource' \\
    'flux module load sched-fluxion-qmanager' > "$base/load-fluxion.sh"
rm -f "$HEADRACE_MINI_DIR/ended"
child=
# The first process of a container gets no signal that it has not asked for.
trap '[ -z "$child" ] || {{ kill -TERM "$child"; wait "$child"; }} || :; exit 143' TERM
broker() {{
    status=0
    "$@" &
    child=$!
    wait "$child" || status=$?
    child=
}}
"""


def _configuration(cluster: MiniCluster, pods: PodPlan) -> str:
    """The key, the host list, the resources, and `broker.toml` (the user's own if it is given)."""
    toml = '"$config/etc/flux/config/broker.toml"'
    common = f"""
(umask 077; cat {names.KEYS_MOUNT}{CURVE_CERT} > "$config/curve/curve.cert")
echo {shlex.quote(pods.hosts)} > "$config/etc/flux/system/hostlist"
flux R encode --hosts={shlex.quote(pods.hosts)} --local > "$config/etc/flux/system/R"
"""
    if cluster.flux.broker_config:
        return f"{common}cat > {toml} <<'{_END}'\n{cluster.flux.broker_config.rstrip()}\n{_END}\n"
    lead = f"{{ host={json.dumps(pods.lead)}, connect={json.dumps(pods.lead_connect)} }}, " if pods.lead_connect else ""
    policy = (cluster.flux.scheduler.queue_policy if cluster.flux.scheduler else "") or "fcfs"
    return f"""{common}
address=${_ADDRESS_VARIABLE}
case $address in *:*) address="[$address]" ;; esac
{{
cat <<{_END}
[access]
allow-guest-user = true
allow-root-owner = true
[resource]
path = "$config/etc/flux/system/R"
[bootstrap]
curve_cert = "$config/curve/curve.cert"
default_port = {BROKER_PORT}
default_bind = "tcp://$address:%p"
default_connect = "tcp://%h.{pods.service}.${NAMESPACE_VARIABLE}.svc.{pods.domain}:%p"
hosts = [ {lead}{{ host={json.dumps(pods.hosts)} }} ]
[archive]
dbpath = "$STATE_DIR/job-archive.sqlite"
period = "1m"
busytimeout = "50s"
[sched-fluxion-qmanager]
queue-policy = "{policy}"
{_END}
}} > {toml}
"""


def _options(cluster: MiniCluster, plan: Plan) -> str:
    attrs = {"cron.directory": "$config/etc/flux/system/cron.d", "rundir": "$config/run/flux", "statedir": "$STATE_DIR"}
    if not cluster.flux.disable_socket:
        attrs["local-uri"] = "$fluxsocket"
    attrs |= plan.attrs
    if not cluster.flux.topology:
        # Versions before 0.50 do not have tbon.topo.
        del attrs["tbon.topo"]
        attrs["tbon.fanout"] = "256"
    if cluster.logging.zeromq:
        attrs["tbon.zmqdebug"] = "1"
    options = "".join(f",-S{key}={value}" for key, value in attrs.items())
    wrap = f" --wrap={shlex.quote(cluster.flux.wrap)}" if cluster.flux.wrap else ""
    archive = ""
    if cluster.spec.archive and cluster.spec.archive.path:
        path = shlex.quote(cluster.spec.archive.path)
        archive = f'archive={path}\n[ ! -e "$archive" ] || options="$options,-Scontent.restore=$archive"\n'
    return f'options="--config-path=$config/etc/flux/config{options}"\n{archive}start=(flux start{wrap})\n'


def _lead(plan: Plan, ignore_failure: bool, replaces_killed: bool) -> str:
    timed = _TIMED if plan.timed else ""
    begin, end = ("begin=$(date +%s%N)", "elapsed fluxstart") if plan.timed else ("", "")
    if plan.mode is Mode.INTERACTIVE:
        run = 'broker "${start[@]}" -o"$options,-Sbroker.rc2_none"'
    else:
        program = _timed_program(plan) if plan.timed else plan.initial_program
        run = (
            f"cat > \"$HEADRACE_MINI_DIR/program\" <<'{_END}'\n{_NOTE_END}{program.rstrip()}\n{_END}\n"
            'broker "${start[@]}" -o"$options" bash "$HEADRACE_MINI_DIR/program"'
        )
    code = "0" if ignore_failure else f'"$result"\n{_NOT_KILLED if replaces_killed else ""}'
    return f"""{plan.lead_before}{timed}{begin}
{run}
{end}
result=$status
{plan.after}touch "$base/flux-operator-complete.txt"
printf '{{"exit": %d}}' "$result" > /dev/termination-log || :
code={code}
exit $code"""


# The program writes its exit status to a file. If `flux start` has the same status, a status of 137 or 143 is the job's
# own. If the broker was killed, the two differ.
_NOTE_END = "trap 'echo $? > \"$HEADRACE_MINI_DIR/ended\"' EXIT\n"
# As `run.pod.ending.container_status`: Kubernetes recognises a killed pod by exit code 137 or 143.
_NOT_KILLED = """told=$(cat "$HEADRACE_MINI_DIR/ended" 2> /dev/null) || told=
case $result=$told in 137=137 | 143=143) code=$((384 - result)) ;; esac"""

# Prints the time since `begin` (nanoseconds) in the format %E of time(1).
_TIMED = r"""
elapsed() {
    local hundredths=$((($(date +%s%N) - begin) / 10000000))
    local seconds=$((hundredths / 100)) rest=$((hundredths % 100))
    if [ $seconds -ge 3600 ]; then
        printf 'FLUXTIME %s wall time %d:%02d:%02d\n' $1 $((seconds / 3600)) $((seconds / 60 % 60)) $((seconds % 60))
    else
        printf 'FLUXTIME %s wall time %d:%02d.%02d\n' $1 $((seconds / 60)) $((seconds % 60)) $rest
    fi >&2
}
export -f elapsed
"""


def _timed_program(plan: Plan) -> str:
    return f"begin=$(date +%s%N)\n{plan.initial_program.rstrip()}\nresult=$?\nelapsed fluxsubmit\nexit $result"


def _follower(plan: Plan, complete: bool) -> str:
    ends = "break" if complete else '[ "$status" != 0 ] || break'
    return f"""{plan.follower_before}while :; do
    broker "${{start[@]}}" -o"$options"
    {ends}
    sleep 1
done
{plan.after}touch "$base/flux-operator-complete.txt"
exit 0"""


def _sidecar_script(cluster: MiniCluster, index: str) -> str:
    """The script that runs a container's command and then waits, so that it is not restarted."""
    one = make_pod_plan(cluster).sidecars[index]
    base = _base(cluster)
    socket = shlex.quote(f"{base}/config/run/flux/local")
    wait = f"until [ -S {socket} ]; do sleep 0.2; done\n" if one.waits_for_socket else ""
    return f"""#!/bin/bash
export fluxsocket=local://{socket}
child=
trap '[ -z "$child" ] || kill "$child"; exit 143' TERM
(
{one.before}{wait}{one.command}
result=$?
{one.after}exit $result
) &
child=$!
wait "$child" || exit
sleep infinity &
child=$!
wait "$child"
"""


def _base(cluster: MiniCluster) -> str:
    view = cluster.flux.container
    return (view.mount_path.rstrip("/") if view else "") or names.VIEW_ROOT
