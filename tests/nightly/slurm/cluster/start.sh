#!/usr/bin/env bash
# Start a SLURM cluster of eight nodes on this one machine: as root, without systemd, on loopback, with accounting,
# preemption, two stand-in GPUs a node and, where cgroups allow, a memory limit that is enforced. What runs already is
# left alone. It needs, on Debian 12:
#   apt-get install --no-install-recommends slurmctld slurmd slurm-client slurmdbd munge mariadb-server openmpi-bin
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
STATE=${KETSCALE_SLURM_STATE:-/var/tmp/ketscale-slurm}
NODES=$(echo node{1..8})
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
until_ok() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; echo "gave up: $*" >&2; return 1; }

# --- configuration: in /etc/slurm, since Snakemake's jobstep drops SLURM_CONF from the environment
if [ -e /etc/slurm/slurm.conf ] && ! grep -q '^ClusterName=ketscale-test$' /etc/slurm/slurm.conf; then
  echo "/etc/slurm/slurm.conf belongs to another cluster: run this where there is none, in a container say" >&2
  exit 1
fi
mkdir -p "$STATE"/{run,log,state,spool,dev} /etc/slurm
for f in slurm gres cgroup slurmdbd; do sed "s#@STATE@#$STATE#g" "$HERE/etc/$f.conf" > "/etc/slurm/$f.conf"; done
chmod 644 /etc/slurm/{slurm,gres,cgroup}.conf; chmod 600 /etc/slurm/slurmdbd.conf
probe=/sys/fs/cgroup/memory/ketscale_probe
if mkdir $probe 2>/dev/null && rmdir $probe; then
  printf '%s\n' ProctrackType=proctrack/cgroup TaskPlugin=task/cgroup > /etc/slurm/enforce.conf
else
  printf '%s\n' ProctrackType=proctrack/linuxproc TaskPlugin=task/none JobAcctGatherParams=OverMemoryKill > /etc/slurm/enforce.conf
fi
unset SLURM_CONF
# Debian's mpi/pmix opens libpmix.so, which only libpmix-dev ships.
PMIX=/usr/lib/x86_64-linux-gnu/pmix2/lib
[ -e $PMIX/libpmix.so.2 ] && [ ! -e $PMIX/libpmix.so ] && ln -s libpmix.so.2 $PMIX/libpmix.so
# A generic resource wants device nodes; 1,3 is /dev/null.
for i in 0 1; do [ -e "$STATE/dev/nvidia$i" ] || mknod -m 666 "$STATE/dev/nvidia$i" c 1 3; done
{ cat /etc/hosts; echo "127.0.0.1 $NODES"; } > "$STATE/hosts"

# --- munge
if ! alive /run/munge/munged.pid; then
  install -d -m 755 -o munge -g munge /run/munge
  runuser -u munge -- munged
  touch "$STATE/run/munge-is-ours"
fi
until_ok sh -c 'munge -n | unmunge'

# --- mariadb, private data directory
if ! alive $STATE/run/mariadbd.pid; then
  [ -d $STATE/mysql/mysql ] || mariadb-install-db --no-defaults --datadir=$STATE/mysql --user=root --skip-test-db > $STATE/log/mariadb-install.log 2>&1
  setsid mariadbd --no-defaults --user=root --datadir=$STATE/mysql --socket=$STATE/run/mysqld.sock --pid-file=$STATE/run/mariadbd.pid \
    --bind-address=127.0.0.1 --port=16306 --innodb-buffer-pool-size=128M --innodb-lock-wait-timeout=900 \
    --innodb-flush-log-at-trx-commit=0 > $STATE/log/mariadbd.log 2>&1 < /dev/null &
fi
SQL="mariadb --no-defaults --user=root --socket=$STATE/run/mysqld.sock"
until_ok $SQL -e 'select 1'
$SQL -e "create database if not exists slurm_acct_db;
  create user if not exists slurm@'127.0.0.1' identified by 'slurm'; create user if not exists slurm@localhost identified by 'slurm';
  grant all on slurm_acct_db.* to slurm@'127.0.0.1'; grant all on slurm_acct_db.* to slurm@localhost;"

# --- slurmdbd, cluster, account, users
alive $STATE/run/slurmdbd.pid || slurmdbd
until_ok timeout 5 sacctmgr -n show cluster
has() { sacctmgr -n show "$@" | grep -q .; }
has cluster ketscale-test || sacctmgr -i add cluster ketscale-test > /dev/null
has account ci || sacctmgr -i add account ci Description=ci Organization=ci > /dev/null
has assoc user=root account=ci || sacctmgr -i add user root account=ci > /dev/null

# --- slurmctld and eight slurmd, each with its own hostname, /dev/shm and /etc/hosts
alive $STATE/run/slurmctld.pid || slurmctld
until_ok sh -c 'scontrol ping | grep -q UP'
for n in $NODES; do
  mkdir -p $STATE/spool/$n; install -d -m 1777 $STATE/tmp/$n
  alive $STATE/run/slurmd.$n.pid || unshare --uts --mount --propagation private sh -c \
    "hostname $n; mount -t tmpfs -o mode=1777 shm /dev/shm; mount --bind $STATE/hosts /etc/hosts; exec slurmd -N $n"
done
# A drained node of the last time would stay so.
scontrol update nodename=node[1-8] state=resume 2>/dev/null || true
until_ok sh -c '[ "$(sinfo -h -N -t idle,mixed,alloc -o %N | sort -u | wc -l)" = 8 ]' || { sinfo -R; exit 1; }
sinfo
