#!/usr/bin/env bash
# Stop what start.sh started, each by its own pid file, and take its configuration away, so that Snakemake does not
# look for a cluster that is not there; --wipe also forgets all accounting.
STATE=${KETSCALE_SLURM_STATE:-/var/tmp/ketscale-slurm}
gone() { local s; s=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1); [ -z "$s" ] || [ "$s" = Z ]; }
[ -s $STATE/run/slurmctld.pid ] && timeout 5 scancel -u root 2>/dev/null
for f in $STATE/run/{slurmctld,slurmd.node{1..8},slurmdbd,mariadbd}.pid $([ -e $STATE/run/munge-is-ours ] && echo /run/munge/munged.pid); do
  [ -s "$f" ] || continue
  p=$(cat "$f")
  gone "$p" || kill "$p"
  for _ in $(seq 150); do gone "$p" && break; sleep 0.1; done
  gone "$p" || { echo "still alive: $f $p" >&2; kill -9 "$p"; }
  rm -f "$f"
done
[ "${1:-}" = --wipe ] && rm -rf $STATE
grep -qs '^ClusterName=ketscale-test$' /etc/slurm/slurm.conf && rm -f /etc/slurm/{slurm,gres,cgroup,slurmdbd,enforce}.conf
exit 0
